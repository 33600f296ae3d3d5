//! What more threads of the engine cost and bring: the same jobs with one thread and with two, in turns.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::api::Api;
use super::arguments::Arguments;
use super::shapes;
use super::work::work;
use crate::figures::{Sheet, micros, spread};
use crate::machine::{Store, Testbed};

/// Workflows of one request.
const BULK: usize = 1_000;

/// What was measured with so many threads, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Threads {
    store: String,
    threads: usize,
    jobs_per_second: Vec<f64>,
    server_us_per_job: Vec<f64>,
    redis_us_per_job: Vec<f64>,
    /// Of the processor time of the engine's threads, the part of each, the busiest first.
    shares: Vec<Vec<f64>>,
}

pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Threads>> {
    let mut rows = Vec::new();
    for store in ["Redis", "SQLite"] {
        rows.extend([1, 2].map(|threads| Threads {
            store: store.to_owned(),
            threads,
            ..Threads::default()
        }));
    }
    for round in 1..=arguments.rounds {
        eprintln!("threads, round {round} of {}", arguments.rounds);
        for row in &mut rows {
            row.turn(arguments).await?;
        }
    }
    Ok(rows)
}

impl Threads {
    /// Creates and executes workflows of two jobs.
    async fn turn(&mut self, arguments: &Arguments) -> anyhow::Result<()> {
        let store = if self.store == "Redis" {
            Store::Redis
        } else {
            Store::Embedded
        };
        let testbed = Testbed::start_with(
            &arguments.server,
            store,
            &[("TIDEGATE_CORES", self.threads.to_string())],
        )
        .await?;
        let mut api = Api::connect(testbed.server.api()).await?;
        let batches = arguments.executed.div_ceil(BULK);
        for _ in 0..batches {
            api.post(
                "/v1/workflows:batch",
                shapes::batch(&shapes::pair("now"), BULK),
            )
            .await?;
        }
        let jobs = batches * BULK * 2;
        let (before, times) = (testbed.costs()?, self.times(&testbed)?);
        let took = work(testbed.server.api(), jobs).await?;
        let spent = testbed.costs()?.since(before);
        let per_job = |time: Duration| micros(time) / jobs as f64;
        self.jobs_per_second.push(jobs as f64 / took.as_secs_f64());
        self.server_us_per_job.push(per_job(spent.server.total));
        self.redis_us_per_job.extend(spent.redis.map(per_job));
        let spent: Vec<f64> = self
            .times(&testbed)?
            .iter()
            .zip(times)
            .map(|(now, then)| micros(*now - then))
            .collect();
        ensure!(
            spent.len() == self.threads,
            "the engine has {} threads",
            spent.len()
        );
        let all: f64 = spent.iter().sum();
        let mut shares: Vec<f64> = spent.iter().map(|time| time / all).collect();
        shares.sort_by(|one, other| other.total_cmp(one));
        self.shares.push(shares);
        Ok(())
    }

    /// Processor time of each thread of the engine so far.
    fn times(&self, testbed: &Testbed) -> anyhow::Result<Vec<Duration>> {
        let mut threads = testbed.server.process().threads("workflows")?;
        threads.sort_unstable();
        Ok(threads.into_iter().map(|(_, time)| time).collect())
    }
}

pub(crate) fn sheet(rows: &[Threads]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "store",
        "threads",
        "no-op jobs/s",
        "server CPU, us/job",
        "Redis CPU, us/job",
        "share of each thread, %",
    ]);
    for row in rows {
        let share = |at: usize| spread(row.shares.iter().map(|shares| 100.0 * shares[at]), 0);
        let figures = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            row.store.clone(),
            row.threads.to_string(),
            figures(&row.jobs_per_second, 0),
            figures(&row.server_us_per_job, 1),
            figures(&row.redis_us_per_job, 1),
            (0..row.threads).map(share).collect::<Vec<_>>().join(", "),
        ]);
    }
    sheet
}
