//! One tenant with room beside a thousand without, for whom a million jobs wait.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::crew::{Crew, Jobs, report};
use super::tenants::{Clock, create, names, queue_up, workflow};
use crate::figures::{Sheet, micros, spread};
use crate::machine::{Store, Testbed};
use crate::workflow::api::Api;
use crate::workflow::arguments::Arguments;
use crate::workflow::times::Times;

/// Time between two jobs of the tenant with room.
const APART: Duration = Duration::from_millis(5);
/// One in so many keys opens, where some do.
const OPENING: usize = 10;
/// Jobs of this tenant that are claimed one after the other.
const CLAIMED: usize = 1_000;
/// Who takes the jobs that arrive: more than needed, so that one always waits.
const CREW: Crew = Crew {
    workers: 4,
    busy: Duration::ZERO,
};

/// What was measured beside such tenants, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Behind {
    store: String,
    beside: Beside,
    tenants: usize,
    waiting: usize,
    /// From the moment at which a job is due to be made until a worker has it.
    wait_p50_ms: Vec<f64>,
    wait_p99_ms: Vec<f64>,
    wait_longest_ms: Vec<f64>,
    /// Jobs of the other tenants that were claimed meanwhile, for each second.
    others_per_second: Vec<f64>,
    /// Of claims one after the other.
    claim_p50_ms: Vec<f64>,
    claim_p99_ms: Vec<f64>,
    server_us_per_claim: Vec<f64>,
    redis_us_per_claim: Vec<f64>,
    commands_per_claim: Vec<f64>,
    /// What the jobs that wait took, all together.
    held: Option<Held>,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Held {
    server_bytes: f64,
    redis_bytes: f64,
    seconds: f64,
}

/// What limits the other tenants have.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Beside {
    /// There are none.
    #[default]
    Nobody,
    /// They have had their job of the day.
    Closed,
    /// The same, but every tenth has one job in each second.
    SomeOpening,
}

impl Beside {
    /// The key of the limit of a tenant.
    fn key(self, tenant: usize) -> &'static str {
        match self {
            Self::Nobody => "open",
            Self::SomeOpening if tenant.is_multiple_of(OPENING) => "secondly",
            Self::Closed | Self::SomeOpening => "daily",
        }
    }

    fn words(self, row: &Behind) -> String {
        let Behind {
            tenants, waiting, ..
        } = row;
        match self {
            Self::Nobody => "alone".to_owned(),
            Self::Closed => format!("beside {tenants} keys without room, {waiting} jobs"),
            Self::SomeOpening => "the same, a tenth of the keys opens each second".to_owned(),
        }
    }
}

pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Behind>> {
    let mut rows = Vec::new();
    for (store, name) in [(Store::Redis, "Redis"), (Store::Embedded, "SQLite")] {
        let mut beds = Vec::new();
        for beside in [Beside::Nobody, Beside::Closed, Beside::SomeOpening] {
            let row = Behind {
                store: name.to_owned(),
                beside,
                ..Behind::default()
            };
            beds.push(Bed::start(arguments, store, row).await?);
        }
        for round in 1..=arguments.rounds {
            eprintln!(
                "behind closed keys in {name}, round {round} of {}",
                arguments.rounds
            );
            for bed in &mut beds {
                bed.arrivals(arguments.scale.span).await?;
                bed.claims().await?;
            }
        }
        rows.extend(beds.into_iter().map(|bed| bed.row));
    }
    Ok(rows)
}

struct Bed {
    testbed: Testbed,
    clock: Clock,
    row: Behind,
}

impl Bed {
    async fn start(arguments: &Arguments, store: Store, mut row: Behind) -> anyhow::Result<Self> {
        let testbed = Testbed::start(&arguments.server, store).await?;
        let mut api = Api::connect(testbed.server.api()).await?;
        if row.beside != Beside::Nobody {
            (row.tenants, row.waiting) = (arguments.scale.tenants, arguments.scale.waiting);
            eprintln!("{} jobs of {} tenants are made", row.waiting, row.tenants);
            let (begin, server, redis) = (
                Instant::now(),
                testbed.server.process().resident_bytes()?,
                testbed.redis_counts().memory,
            );
            let names = names(row.tenants);
            let tenants = names
                .iter()
                .enumerate()
                .map(|(at, name)| (row.beside.key(at), name.as_str()));
            queue_up(&mut api, tenants, row.waiting / row.tenants).await?;
            row.held = Some(Held {
                server_bytes: testbed
                    .server
                    .process()
                    .resident_bytes()?
                    .saturating_sub(server) as f64,
                redis_bytes: testbed.redis_counts().memory.saturating_sub(redis) as f64,
                seconds: begin.elapsed().as_secs_f64(),
            });
        }
        if row.beside != Beside::Nobody {
            use_up(&mut api, row.tenants).await?;
        }
        Ok(Self {
            testbed,
            clock: Clock::start(),
            row,
        })
    }

    /// Jobs arrive, and workers wait for them.
    async fn arrivals(&mut self, span: Duration) -> anyhow::Result<()> {
        let (apis, clock) = ([self.testbed.server.api()], self.clock);
        let expected = (span.as_micros() / APART.as_micros()).max(1) as usize;
        let mut maker = Api::connect(apis[0]).await?;
        // A job counts from the moment at which it is due: a server that does not answer is charged for all that should have come meanwhile.
        let make = async move {
            let (mut ticks, first) = (interval(APART), clock.micros());
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            for at in 0..expected {
                ticks.tick().await;
                let due = first + at as u64 * APART.as_micros() as u64;
                maker
                    .post("/v1/workflows", workflow("open", "free", 1, Some(due)))
                    .await?;
            }
            anyhow::Ok(())
        };
        let begin = Instant::now();
        let crew = CREW.work(&apis, clock, move |timed| timed >= expected);
        let both = async { tokio::try_join!(make, crew) };
        let words = self.row.beside.words(&self.row);
        let late = || {
            format!(
                "{words}: {expected} jobs were not done within {:?}",
                10 * span
            )
        };
        let ((), seen) = timeout(10 * span, both).await.with_context(late)??;
        let seconds = begin.elapsed().as_secs_f64();
        let times: Vec<f64> = seen.iter().filter_map(|job| job.waited_ms).collect();
        self.row
            .others_per_second
            .push((seen.len() - times.len()) as f64 / seconds);
        let times = Times::new(times);
        self.row.wait_p50_ms.push(times.at(0.5));
        self.row.wait_p99_ms.push(times.at(0.99));
        self.row.wait_longest_ms.push(times.at(1.0));
        Ok(())
    }

    /// Jobs are ready, and one worker claims them one after the other. Reports are not counted.
    async fn claims(&mut self) -> anyhow::Result<()> {
        let mut api = Api::connect(self.testbed.server.api()).await?;
        let made = self.clock.micros();
        create(
            &mut api,
            (0..CLAIMED).map(|_| (1, workflow("open", "free", 1, Some(made)))),
        )
        .await?;
        let (before, counts) = (self.testbed.costs()?, self.testbed.redis_counts());
        let (mut times, mut answers, mut free) = (Vec::new(), Vec::new(), 0);
        while free < CLAIMED {
            let begin = Instant::now();
            let answer = api.post("/v1/jobs/claim", ONE.to_owned()).await?;
            times.push(begin.elapsed().as_secs_f64() * 1_000.0);
            let Jobs { jobs } = serde_json::from_slice(&answer)?;
            free += jobs.iter().filter(|job| job.params.made.is_some()).count();
            ensure!(
                !jobs.is_empty(),
                "a claim got nothing while {} jobs had room",
                CLAIMED - free
            );
            answers.push(answer);
        }
        let (spent, number) = (self.testbed.costs()?.since(before), times.len() as f64);
        let row = &mut self.row;
        if self.testbed.redis.is_some() {
            let commands = self.testbed.redis_counts().commands - counts.commands;
            row.commands_per_claim.push(commands as f64 / number);
        }
        row.server_us_per_claim
            .push(micros(spent.server.total) / number);
        row.redis_us_per_claim
            .extend(spent.redis.map(|redis| micros(redis) / number));
        let times = Times::new(times);
        row.claim_p50_ms.push(times.at(0.5));
        row.claim_p99_ms.push(times.at(0.99));
        for answers in answers.chunks(100) {
            let mut jobs = Vec::new();
            for answer in answers {
                jobs.extend(serde_json::from_slice::<Jobs<'_>>(answer)?.jobs);
            }
            api.post("/v1/jobs/report", report(&jobs, "null")).await?;
        }
        Ok(())
    }
}

const ONE: &str = r#"{"queues":["default"],"worker":"w","limit":1}"#;

/// Takes the job that each tenant has room for.
async fn use_up(api: &mut Api, tenants: usize) -> anyhow::Result<()> {
    let mut used = 0;
    loop {
        let wish = r#"{"queues":["default"],"worker":"w","limit":1000}"#;
        let answer = api.post("/v1/jobs/claim", wish.to_owned()).await?;
        let Jobs { jobs } = serde_json::from_slice(&answer)?;
        used += jobs.len();
        if !jobs.is_empty() {
            api.post("/v1/jobs/report", report(&jobs, "null")).await?;
        }
        if used >= tenants {
            return Ok(());
        }
        ensure!(!jobs.is_empty(), "{used} of {tenants} keys gave a job");
    }
}

/// What the others cost the tenant with room.
pub(super) fn sheet(rows: &[Behind]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "a tenant with room",
        "store",
        "wait p50, ms",
        "wait p99, ms",
        "longest, ms",
        "p99 beside alone",
        "claim p50, ms",
        "claim p99, ms",
        "server CPU, us/claim",
        "beside alone",
        "Redis CPU, us/claim",
        "Redis commands/claim",
        "others' jobs/s",
    ]);
    for row in rows {
        let alone = rows
            .iter()
            .find(|other| other.store == row.store && other.beside == Beside::Nobody);
        let ratio = |of: fn(&Behind) -> &Vec<f64>| {
            let alone = alone.map_or(&[][..], |alone| of(alone).as_slice());
            spread(
                of(row).iter().zip(alone).map(|(here, alone)| here / alone),
                2,
            )
        };
        let spread = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            row.beside.words(row),
            row.store.clone(),
            spread(&row.wait_p50_ms, 2),
            spread(&row.wait_p99_ms, 2),
            spread(&row.wait_longest_ms, 1),
            ratio(|row| &row.wait_p99_ms),
            spread(&row.claim_p50_ms, 2),
            spread(&row.claim_p99_ms, 2),
            spread(&row.server_us_per_claim, 1),
            ratio(|row| &row.server_us_per_claim),
            spread(&row.redis_us_per_claim, 1),
            spread(&row.commands_per_claim, 2),
            spread(&row.others_per_second, 0),
        ]);
    }
    sheet
}

/// What the jobs that wait take.
pub(super) fn held(rows: &[Behind]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "jobs that wait",
        "store",
        "server memory, MiB",
        "server, bytes/job",
        "Redis, bytes/job",
        "made, jobs/s",
    ]);
    for row in rows {
        let Some(held) = row.held else { continue };
        let each = |bytes: f64| format!("{:.0}", bytes / row.waiting as f64);
        sheet.row(vec![
            row.beside.words(row),
            row.store.clone(),
            format!("{:.0}", held.server_bytes / f64::from(1 << 20)),
            each(held.server_bytes),
            if held.redis_bytes > 0.0 {
                each(held.redis_bytes)
            } else {
                "-".to_owned()
            },
            format!("{:.0}", row.waiting as f64 / held.seconds),
        ]);
    }
    sheet
}
