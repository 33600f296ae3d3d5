//! What limits of jobs cost: one that is open, a thousand keys, and a key without room behind which many jobs wait.

use std::time::Instant;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use crate::figures::{self, Sheet, Table, micros, spread};
use crate::machine::{Store, Testbed};
use crate::workflow::api::{Api, Work, report};
use crate::workflow::arguments::Arguments;
use crate::workflow::times::Times;
use crate::workflow::work::work;

/// Workflows of one call.
const BULK: usize = 1_000;
/// Keys of the many.
const KEYS: usize = 1_000;
/// Jobs that are claimed one by one beside a key without room.
const CLAIMED: usize = 500;

/// What was measured of a store, once for each turn.
#[derive(Default, Serialize, Deserialize)]
struct Limits {
    store: String,
    kind: Kind,
    jobs_per_second: Vec<f64>,
    server_us_per_job: Vec<f64>,
    redis_us_per_job: Vec<f64>,
    commands_per_job: Vec<f64>,
    claim_p50_ms: Vec<f64>,
    claim_p99_ms: Vec<f64>,
}

/// Under what the jobs are.
#[derive(Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    #[default]
    None,
    /// One key with room.
    One,
    /// Many keys with room.
    Many,
    /// None, claimed one by one.
    Single,
    /// The same, and many jobs wait in the queue for a key without room.
    BesideClosed,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::None,
        Self::One,
        Self::Many,
        Self::Single,
        Self::BesideClosed,
    ];

    fn words(self) -> &'static str {
        match self {
            Self::None => "no limit",
            Self::One => "one limit",
            Self::Many => "1,000 keys",
            Self::Single => "no limit, one by one",
            Self::BesideClosed => "one by one beside a closed key",
        }
    }

    /// A workflow of one job.
    fn workflow(self, at: usize) -> String {
        let limits = match self {
            Self::None | Self::Single | Self::BesideClosed => String::new(),
            Self::One => limits("open", 0),
            Self::Many => limits("open", at % KEYS),
        };
        format!(
            r#"{{"name":"bench","start":"now","jobs":[{{"name":"call","handler":"Call"{limits}}}]}}"#
        )
    }
}

fn limits(key: &str, value: usize) -> String {
    format!(r#","limits":[{{"domain":"jobs","entries":[["{key}","{value}"]]}}]"#)
}

/// What was measured.
#[derive(Serialize, Deserialize)]
pub(in crate::workflow) struct Results(Vec<Limits>);

impl figures::Results for Results {
    const NAME: &str = "limits";

    fn tables(&self) -> Vec<Table> {
        vec![Table::new("limits", sheet(&self.0))]
    }
}

pub(in crate::workflow) async fn measure(arguments: &Arguments) -> anyhow::Result<Results> {
    let mut rows = Vec::new();
    for (store, name) in [(Store::Redis, "Redis"), (Store::Embedded, "SQLite")] {
        for kind in Kind::ALL {
            rows.push((
                store,
                Limits {
                    store: name.to_owned(),
                    kind,
                    ..Limits::default()
                },
            ));
        }
    }
    for round in 1..=arguments.rounds {
        eprintln!("limits, round {round} of {}", arguments.rounds);
        for (store, row) in &mut rows {
            let testbed = Testbed::start(&arguments.server, *store).await?;
            match row.kind {
                Kind::Single | Kind::BesideClosed => {
                    one_by_one(&testbed, row, arguments.executed).await?
                }
                _ => all(&testbed, row, arguments.executed).await?,
            }
        }
    }
    Ok(Results(rows.into_iter().map(|(_, row)| row).collect()))
}

async fn create(api: &mut Api, number: usize, one: impl Fn(usize) -> String) -> anyhow::Result<()> {
    for from in (0..number).step_by(BULK) {
        let each: Vec<String> = (from..(from + BULK).min(number)).map(&one).collect();
        api.post(
            "/v1/workflows:batch",
            format!("{{\"workflows\":[{}]}}", each.join(",")),
        )
        .await?;
    }
    Ok(())
}

/// Workers that ask for a hundred jobs at a time do all.
async fn all(testbed: &Testbed, row: &mut Limits, jobs: usize) -> anyhow::Result<()> {
    let mut api = Api::connect(testbed.server.api()).await?;
    create(&mut api, jobs, |at| row.kind.workflow(at)).await?;
    let (before, counts) = (testbed.costs()?, testbed.redis_counts());
    let took = work(testbed.server.api(), jobs).await?;
    let spent = testbed.costs()?.since(before);
    let number = jobs as f64;
    row.jobs_per_second.push(number / took.as_secs_f64());
    row.server_us_per_job
        .push(micros(spent.server.total) / number);
    row.redis_us_per_job
        .extend(spent.redis.map(|redis| micros(redis) / number));
    if testbed.redis.is_some() {
        row.commands_per_job
            .push((testbed.redis_counts().commands - counts.commands) as f64 / number);
    }
    let counts = api.json("/v1/workflows:count?name=bench").await?;
    ensure!(
        counts["by_status"]["succeeded"] == jobs,
        "not all workflows succeeded: {counts}"
    );
    Ok(())
}

/// One worker, one job at a time.
async fn one_by_one(testbed: &Testbed, row: &mut Limits, waiting: usize) -> anyhow::Result<()> {
    let mut api = Api::connect(testbed.server.api()).await?;
    let wish = r#"{"queues":["default"],"worker":"w","limit":1}"#;
    if row.kind == Kind::BesideClosed {
        let closed = limits("closed", 0);
        let one = |_| {
            format!(
                r#"{{"name":"closed","start":"now","jobs":[{{"name":"call","handler":"Call"{closed}}}]}}"#
            )
        };
        create(&mut api, waiting, one).await?;
        let none = api.post("/v1/jobs/claim", wish.to_owned()).await?;
        ensure!(
            serde_json::from_slice::<Work<'_>>(&none)?.jobs.is_empty(),
            "the key is not closed"
        );
    }
    create(&mut api, CLAIMED, |at| row.kind.workflow(at)).await?;
    let (before, counts) = (testbed.costs()?, testbed.redis_counts());
    let mut milliseconds = Vec::with_capacity(CLAIMED);
    for _ in 0..CLAIMED {
        let start = Instant::now();
        let answer = api.post("/v1/jobs/claim", wish.to_owned()).await?;
        milliseconds.push(start.elapsed().as_secs_f64() * 1_000.0);
        let work = serde_json::from_slice::<Work<'_>>(&answer)?;
        ensure!(
            work.jobs.len() == 1,
            "a job that nothing holds up was not found"
        );
        api.post("/v1/jobs/report", report(&work, "null")).await?;
    }
    let spent = testbed.costs()?.since(before);
    let number = CLAIMED as f64;
    row.server_us_per_job
        .push(micros(spent.server.total) / number);
    row.redis_us_per_job
        .extend(spent.redis.map(|redis| micros(redis) / number));
    if testbed.redis.is_some() {
        row.commands_per_job
            .push((testbed.redis_counts().commands - counts.commands) as f64 / number);
    }
    let times = Times::new(milliseconds);
    row.claim_p50_ms.push(times.at(0.5));
    row.claim_p99_ms.push(times.at(0.99));
    Ok(())
}

fn sheet(rows: &[Limits]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "limits of jobs",
        "store",
        "no-op jobs/s",
        "server CPU, us/job",
        "Redis CPU, us/job",
        "Redis commands/job",
        "claim p50, ms",
        "p99, ms",
    ]);
    for row in rows {
        let spread = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            row.kind.words().to_owned(),
            row.store.clone(),
            spread(&row.jobs_per_second, 0),
            spread(&row.server_us_per_job, 1),
            spread(&row.redis_us_per_job, 1),
            spread(&row.commands_per_job, 2),
            spread(&row.claim_p50_ms, 2),
            spread(&row.claim_p99_ms, 2),
        ]);
    }
    sheet
}
