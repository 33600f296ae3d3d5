//! Decisions for the gateway while jobs run on the same server, under the same limits.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use tokio::runtime;

use super::crew::Crew;
use super::tenants::{Clock, create, workflow};
use crate::figures::{Sheet, micros, spread};
use crate::load::{Distribution, Keys, Load, Shape};
use crate::machine::{Store, Testbed};
use crate::workflow::api::Api;
use crate::workflow::arguments::Arguments;

/// Decisions in a second.
const RATE: f64 = 2_000.0;
/// Keys of both.
const KEYS: u32 = 1_000;
/// Jobs in a second, at most.
const MOST: usize = 600;
/// Some five hundred jobs in a second.
const CREW: Crew = Crew {
    workers: 8,
    busy: Duration::from_millis(15),
};
const WARM_UP: Duration = Duration::from_millis(500);

/// What was measured, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Mixed {
    store: String,
    what: What,
    decision_p50_ms: Vec<f64>,
    decision_p99_ms: Vec<f64>,
    /// What jobs alone cost is not among this.
    server_us_per_decision: Vec<f64>,
    redis_us_per_decision: Vec<f64>,
    commands_per_decision: Vec<f64>,
    jobs_per_second: Vec<f64>,
    /// Of jobs without decisions.
    server_us_per_job: Vec<f64>,
    redis_us_per_job: Vec<f64>,
    commands_per_job: Vec<f64>,
    server_mib: Vec<f64>,
    redis_mib: Vec<f64>,
}

/// What the server does.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum What {
    /// Workflows are off.
    #[default]
    Decisions,
    /// There are none, but there could be.
    IdleJobs,
    Jobs,
    Both,
}

impl What {
    const ALL: [Self; 4] = [Self::Decisions, Self::IdleJobs, Self::Jobs, Self::Both];

    fn words(self) -> &'static str {
        match self {
            Self::Decisions => "decisions, workflows off",
            Self::IdleJobs => "decisions, no jobs",
            Self::Jobs => "jobs, no decisions",
            Self::Both => "decisions and jobs",
        }
    }

    fn has_jobs(self) -> bool {
        matches!(self, Self::Jobs | Self::Both)
    }
}

pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Mixed>> {
    let mut rows: Vec<(Store, Mixed)> = Vec::new();
    for (store, name) in [(Store::Redis, "Redis"), (Store::Embedded, "SQLite")] {
        rows.extend(What::ALL.map(|what| {
            (
                store,
                Mixed {
                    store: name.to_owned(),
                    what,
                    ..Mixed::default()
                },
            )
        }));
    }
    for round in 1..=arguments.rounds {
        eprintln!("decisions and jobs, round {round} of {}", arguments.rounds);
        for at in 0..rows.len() {
            let jobs = rows
                .iter()
                .find(|(_, row)| row.what == What::Jobs && row.store == rows[at].1.store);
            let jobs = jobs.and_then(|(_, row)| row.last_of_jobs());
            let (store, row) = &mut rows[at];
            row.turn(arguments, *store, jobs).await?;
        }
    }
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// What one job cost: the server, Redis, in commands.
#[derive(Clone, Copy, Default)]
struct Job(f64, f64, f64);

impl Mixed {
    fn last_of_jobs(&self) -> Option<Job> {
        let last = |figures: &[f64]| figures.last().copied();
        let server = last(&self.server_us_per_job)?;
        Some(Job(
            server,
            last(&self.redis_us_per_job).unwrap_or(0.0),
            last(&self.commands_per_job).unwrap_or(0.0),
        ))
    }

    async fn turn(
        &mut self,
        arguments: &Arguments,
        store: Store,
        job: Option<Job>,
    ) -> anyhow::Result<()> {
        let off = [("TIDEGATE_HTTP_ADDR", String::new())];
        let settings = if self.what == What::Decisions {
            &off[..]
        } else {
            &[]
        };
        let testbed = Testbed::start_with(&arguments.server, store, settings).await?;
        let span = arguments.scale.span;
        if self.what.has_jobs() {
            let mut api = Api::connect(testbed.server.api()).await?;
            let number = ((span + 2 * WARM_UP).as_secs_f64() * MOST as f64) as usize;
            let each = (0..number).map(|at| {
                (
                    1,
                    workflow("open", &format!("000-{:010}", at % KEYS as usize), 1, None),
                )
            });
            create(&mut api, each).await?;
        }
        let worker = self.what.has_jobs().then(|| {
            let (api, clock) = (testbed.server.api(), Clock::start());
            thread::spawn(move || work(api, clock, span + 2 * WARM_UP))
        });
        // Jobs run during the whole of what is counted: the load ends before the workers do.
        tokio::time::sleep(WARM_UP).await;
        let (begin, before, counts) = (Instant::now(), testbed.costs()?, testbed.redis_counts());
        let from = worker.is_some().then(Instant::now);
        let measured = match self.what {
            What::Jobs => {
                tokio::time::sleep(span).await;
                None
            }
            _ => Some(load(&testbed, span).run(None).await?),
        };
        let (spent, commands) = (
            testbed.costs()?.since(before),
            testbed.redis_counts().commands - counts.commands,
        );
        let seconds = begin.elapsed().as_secs_f64();
        self.server_mib
            .push(testbed.server.process().resident_bytes()? as f64 / f64::from(1 << 20));
        if testbed.redis.is_some() {
            self.redis_mib
                .push(testbed.redis_counts().memory as f64 / f64::from(1 << 20));
        }
        let mut jobs = 0.0;
        if let (Some(worker), Some(from)) = (worker, from) {
            let at = worker
                .join()
                .map_err(|_| anyhow!("the workers panicked"))??;
            let during = |moment: &&Instant| {
                **moment >= from && moment.duration_since(from).as_secs_f64() <= seconds
            };
            jobs = at.iter().filter(during).count() as f64;
            self.jobs_per_second.push(jobs / seconds);
        }
        let (server, redis) = (micros(spent.server.total), spent.redis.map(micros));
        match measured {
            None => {
                self.server_us_per_job.push(server / jobs);
                self.redis_us_per_job
                    .extend(redis.map(|redis| redis / jobs));
                self.commands_per_job.push(commands as f64 / jobs);
            }
            Some(measured) => {
                let tally = &measured.tally;
                anyhow::ensure!(tally.failures() == 0, "calls failed: {:?}", tally.errors);
                let Job(of_server, of_redis, of_commands) =
                    job.filter(|_| jobs > 0.0).unwrap_or_default();
                let number = tally.decisions() as f64;
                self.decision_p50_ms
                    .push(micros(tally.percentile(50.0)) / 1_000.0);
                self.decision_p99_ms
                    .push(micros(tally.percentile(99.0)) / 1_000.0);
                self.server_us_per_decision
                    .push((server - of_server * jobs) / number);
                self.redis_us_per_decision
                    .extend(redis.map(|redis| (redis - of_redis * jobs) / number));
                self.commands_per_decision
                    .push((commands as f64 - of_commands * jobs) / number);
            }
        }
        Ok(())
    }
}

/// Load without a warm-up of its own, so that all of it is counted.
fn load(testbed: &Testbed, span: Duration) -> Load {
    Load {
        address: testbed.server.grpc(),
        connections: 4,
        streams: 8,
        shape: Shape {
            domain: "jobs".into(),
            key: "open".into(),
            descriptors: 1,
            hits: 0,
        },
        keys: Keys::new(Distribution::Uniform, KEYS, 0.0, 1),
        rate: Some(RATE),
        requests: None,
        warmup: Duration::ZERO,
        duration: span,
    }
}

/// Workers on a thread of their own, so that the load need not wait for them. Returns when they got each job.
fn work(api: SocketAddr, clock: Clock, span: Duration) -> anyhow::Result<Vec<Instant>> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime for the workers")?;
    let begin = Instant::now();
    let seen = runtime.block_on(CREW.work(&[api], clock, move |_| begin.elapsed() >= span))?;
    Ok(seen.into_iter().map(|job| job.at).collect())
}

pub(super) fn sheet(rows: &[Mixed]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "the server makes",
        "store",
        "decision p50, ms",
        "p99, ms",
        "server CPU, us/decision",
        "beside workflows off",
        "Redis CPU, us/decision",
        "Redis commands/decision",
        "jobs/s",
        "server CPU, us/job",
        "Redis commands/job",
        "server, MiB",
        "Redis, MiB",
    ]);
    for row in rows {
        let off = rows
            .iter()
            .find(|other| other.store == row.store && other.what == What::Decisions);
        let off = off.map_or(&[][..], |off| off.server_us_per_decision.as_slice());
        let ratios = row
            .server_us_per_decision
            .iter()
            .zip(off)
            .map(|(here, off)| here / off);
        let figures = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        let of_redis = |figures: &[f64]| {
            if row.redis_mib.is_empty() {
                "-".to_owned()
            } else {
                spread(figures.iter().copied(), 2)
            }
        };
        sheet.row(vec![
            row.what.words().to_owned(),
            row.store.clone(),
            figures(&row.decision_p50_ms, 2),
            figures(&row.decision_p99_ms, 2),
            figures(&row.server_us_per_decision, 1),
            spread(ratios, 2),
            figures(&row.redis_us_per_decision, 1),
            of_redis(&row.commands_per_decision),
            figures(&row.jobs_per_second, 0),
            figures(&row.server_us_per_job, 1),
            of_redis(&row.commands_per_job),
            figures(&row.server_mib, 1),
            figures(&row.redis_mib, 1),
        ]);
    }
    sheet
}
