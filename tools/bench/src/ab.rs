//! `tidegate-bench ab`: whether one build of the server costs more than another.
//!
//! Both builds take turns on servers and stores of their own, first A then B and in the next round first B then A, so that
//! whatever else the machine does falls on both. Each round gives a ratio; the interval comes from their differences.

mod ratio;
mod unit;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::figures::{Sheet, Spread, duration, write_json};
use crate::machine::server;
use ratio::{MOST_PAIRS, Ratio};
use unit::{Sample, WORKS, Work};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The server's program before a change.
    #[arg(long)]
    a: PathBuf,
    /// The server's program after the change.
    #[arg(long)]
    b: PathBuf,
    /// Turns of each build.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=i64::from(MOST_PAIRS)))]
    rounds: u32,
    /// Length of a turn: 3s, 500ms.
    #[arg(long, default_value = "3s", value_parser = duration)]
    turn: Duration,
    /// Measure only work whose name has this text: decisions, workflows, Redis, "memory, 10".
    #[arg(long, default_value = "")]
    only: String,
    /// How much worse B may be and still count as no worse: 0.03 is three per cent.
    #[arg(long, default_value_t = 0.03)]
    margin: f64,
    /// The folder that the figures go to as JSON.
    #[arg(long, default_value = "bench-results")]
    results: PathBuf,
}

/// A figure of a unit: a value of A and one of B from each round.
struct Row {
    unit: String,
    figure: Figure,
    pairs: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    PerSecond,
    ServerMicros,
    RedisMicros,
}

/// Measures, prints the table and writes the JSON.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Absolute, because servers run in folders of their own.
    let (a, b) = (server::find(&arguments.a)?, server::find(&arguments.b)?);
    let mut rows = Vec::new();
    for round in 1..=arguments.rounds {
        for work in WORKS
            .into_iter()
            .filter(|work| work.name().contains(&arguments.only))
        {
            eprintln!("round {round} of {}: {}", arguments.rounds, work.name());
            let pairs = pair(work, (&a, &b), round, arguments.turn).await?;
            add(&mut rows, pairs);
        }
    }
    ensure!(
        !rows.is_empty(),
        "no work has '{}' in its name",
        arguments.only
    );
    println!("A is {}, B is {}.\n", a.display(), b.display());
    println!("{}", sheet(&rows, arguments.margin)?);
    let json: Vec<Value> = rows.iter().map(Row::to_json).collect();
    write_json(
        &arguments.results.join("ab.json"),
        &json!({ "a": arguments.a, "b": arguments.b, "rows": json }),
    )
}

/// One turn of each build. Who is first changes from round to round, because a machine that slows down meanwhile is unfair to the
/// second.
async fn pair(
    work: Work,
    (a, b): (&Path, &Path),
    round: u32,
    time: Duration,
) -> anyhow::Result<Vec<(Sample, Sample)>> {
    let measure = async |name: &str, program: &Path| {
        work.turn(program, time)
            .await
            .with_context(|| format!("{name} could not be measured"))
    };
    let (of_a, of_b) = if round % 2 == 1 {
        let of_a = measure("A", a).await?;
        (of_a, measure("B", b).await?)
    } else {
        let of_b = measure("B", b).await?;
        (measure("A", a).await?, of_b)
    };
    ensure!(of_a.len() == of_b.len(), "A and B did not do the same work");
    Ok(of_a.into_iter().zip(of_b).collect())
}

fn add(rows: &mut Vec<Row>, pairs: Vec<(Sample, Sample)>) {
    for (a, b) in pairs {
        for figure in [Figure::PerSecond, Figure::ServerMicros, Figure::RedisMicros] {
            let Some(pair) = figure.of(&a).zip(figure.of(&b)) else {
                continue;
            };
            match rows
                .iter_mut()
                .find(|row| row.unit == a.unit && row.figure == figure)
            {
                Some(row) => row.pairs.push(pair),
                None => rows.push(Row {
                    unit: a.unit.clone(),
                    figure,
                    pairs: vec![pair],
                }),
            }
        }
    }
}

fn sheet(rows: &[Row], margin: f64) -> anyhow::Result<Sheet> {
    let verdict = format!("within {:.0} %", margin * 100.0);
    let mut sheet = Sheet::new(&["unit", "figure", "A", "B", "B/A", "95 % interval", &verdict]);
    for row in rows {
        let (a, b): (Vec<f64>, Vec<f64>) = row.pairs.iter().copied().unzip();
        let spread =
            |values| Spread::new(values).map_or("-".to_owned(), |spread| row.figure.show(spread));
        let ratio = Ratio::of(&row.pairs)
            .with_context(|| format!("{} has no {}", row.unit, row.figure.name()))?;
        let cost = if row.figure == Figure::PerSecond {
            ratio.inverse()
        } else {
            ratio
        };
        sheet.row(vec![
            row.unit.clone(),
            row.figure.name().to_owned(),
            spread(a),
            spread(b),
            format!("{:.3}", ratio.mean),
            format!("{:.3}-{:.3}", ratio.low, ratio.high),
            cost.judge(margin).name().to_owned(),
        ]);
    }
    Ok(sheet)
}

impl Row {
    fn to_json(&self) -> Value {
        json!({ "unit": self.unit, "figure": self.figure.name(), "pairs": self.pairs, "ratio": Ratio::of(&self.pairs) })
    }
}

impl Figure {
    fn of(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::PerSecond => Some(sample.per_second),
            Self::ServerMicros => Some(sample.server_us),
            Self::RedisMicros => sample.redis_us,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "a second",
            Self::ServerMicros => "server CPU, us",
            Self::RedisMicros => "Redis CPU, us",
        }
    }

    fn show(self, spread: Spread) -> String {
        match self {
            Self::PerSecond => format!("{spread:.0}"),
            Self::ServerMicros | Self::RedisMicros => format!("{spread:.2}"),
        }
    }
}
