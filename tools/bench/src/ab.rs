//! `tidegate-bench ab`: compares the cost of two builds of the server.
//!
//! Both builds run alternately on separate servers and stores, first A then B and in the next round
//! first B then A, so that other load of the machine affects both. Each round gives a ratio; the
//! interval comes from their differences.

mod ratio;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::figures::{Table, duration, write_tables};
use crate::scenario::absolute;
use ratio::{MAX_PAIRS, Ratio};
use work::{RATE_HEAD, WORKS, Work};

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct AbArguments {
    /// The server's program before a change.
    #[arg(long)]
    a: PathBuf,
    /// The server's program after the change.
    #[arg(long)]
    b: PathBuf,
    /// Turns of each build.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=i64::from(MAX_PAIRS)))]
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

/// Measures, prints the table and writes the JSON.
pub(crate) async fn run(arguments: AbArguments) -> Result<()> {
    let programs = [absolute(&arguments.a)?, absolute(&arguments.b)?];
    let [a, b] = programs.each_ref().map(|program| program.display());
    println!("A is {a}, B is {b}.\n");
    let mut builds = ["A", "B"].map(|build| Table::new(build, &["unit"]));
    let is_wanted = |work: &Work| work.name().contains(&arguments.only);
    for round in 1..=arguments.rounds {
        for work in WORKS.into_iter().filter(is_wanted) {
            eprintln!("round {round} of {}: {}", arguments.rounds, work.name());
            // A machine that slows down during a round is unfair to the second build.
            let order = if round % 2 == 1 { [0, 1] } else { [1, 0] };
            for at in order {
                let turn = work
                    .turn(&programs[at], arguments.turn, &mut builds[at])
                    .await;
                turn.with_context(|| format!("{} failed", programs[at].display()))?;
            }
        }
    }
    let table = compare(&builds, arguments.margin)?;
    println!("{table}");
    write_tables(&arguments.results.join("ab.json"), &[table])
}

/// Returns the ratios of all figures of both builds.
fn compare([a, b]: &[Table; 2], margin: f64) -> Result<Table> {
    let verdict = format!("within {:.0} %", margin * 100.0);
    let mut table = Table::new("ab", &["unit", "figure", &verdict]);
    let mut of_b = b.series();
    for a in a.series() {
        let b = of_b.next().context("B did less than A")?;
        let ratio = Ratio::new(a.values, b.values)
            .with_context(|| format!("{} has no {}", a.row, a.head))?;
        let cost = if a.head == RATE_HEAD {
            ratio.inverse()
        } else {
            ratio
        };
        let mut row = table.row(&[&a.row, &a.head, &cost.judge(margin).name()]);
        for (a, b) in a.values.iter().zip(b.values) {
            row.add("A", 2, *a);
            row.add("B", 2, *b);
        }
        row.add("B/A", 3, ratio.mean);
        row.add("95 % from", 3, ratio.low);
        row.add("to", 3, ratio.high);
    }
    ensure!(table.series().next().is_some(), "no work has such a name");
    Ok(table)
}
