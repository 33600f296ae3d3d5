//! `--limits`: measures the cost of limits of jobs, and the effect of many keys without room on one
//! with room.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::ApiClient;
use super::api::claim;
use super::graphs::{limit, limited};
use super::worker::WorkerPool;
use crate::figures::{RowFigures, Table, millis, percentile};
use crate::machine::{Meter, Store, Testbed};
use crate::scenario::RunOptions;

/// Limits of the jobs, by the number of keys that the jobs alternate between.
const KEYS: [(&str, usize); 3] = [("no limit", 0), ("one limit", 1), ("1,000 keys", 1_000)];

/// Number of tenants without room.
const TENANTS: usize = 1_000;
/// Maximum number of jobs of a workflow.
const MAX_JOBS_PER_WORKFLOW: usize = 100;
/// Time between two jobs of the tenant with room.
const ARRIVAL_INTERVAL: Duration = Duration::from_millis(5);
/// Number of jobs of this tenant that are claimed in sequence.
const CLAIMED_JOBS: usize = 1_000;

/// A server with waiting jobs, and its name in the table.
struct Fixture {
    name: String,
    testbed: Testbed,
    start: Instant,
}

/// Measures one limit with room, and a thousand keys of it.
pub(super) async fn cost(options: &RunOptions, jobs: usize) -> Result<Table> {
    let mut table = Table::new("limits", &["limits of jobs", "store"]);
    for _ in options.rounds("limits") {
        for store in [Store::Redis, Store::Embedded] {
            for (name, keys) in KEYS {
                let testbed = Testbed::start(&options.program()?, store).await?;
                let mut row = table.row(&[&name, &store.workflow_store_name()]);
                run_limited(&testbed, &mut row, keys, jobs).await?;
            }
        }
    }
    Ok(table)
}

/// Measures jobs that alternate between the keys of a limit. None are limited if `keys` is zero.
async fn run_limited(
    testbed: &Testbed,
    row: &mut RowFigures<'_>,
    keys: usize,
    jobs: usize,
) -> Result<()> {
    let mut api = testbed.connect().await?;
    let limits = |at: usize| at.checked_rem(keys).map(|at| limit("open", at));
    let one = |at| limited(1, &limits(at).unwrap_or_default(), None);
    api.create((0..jobs).map(one)).await?;
    let mut meter = Meter::start(testbed)?;
    let took = testbed.run_all_jobs(jobs).await?;
    let spent = meter.read()?;
    row.add("no-op jobs/s", 0, jobs as f64 / took.as_secs_f64());
    spent.add_to(row, "job", jobs as u64);
    spent.add_commands_to(row, "job", jobs as u64);
    api.check_succeeded("bench", jobs).await
}

/// Measures one tenant with room, alone and with many waiting jobs of a thousand tenants without
/// room.
pub(super) async fn key_with_room(options: &RunOptions, waiting: usize) -> Result<Table> {
    let mut table = Table::new("behind", &["a tenant with room", "store"]);
    let program = options.program()?;
    for store in [Store::Redis, Store::Embedded] {
        let mut fixtures = Vec::new();
        for waiting in [0, waiting] {
            fixtures.push(Fixture::start(&program, store, waiting).await?);
        }
        let name = store.workflow_store_name();
        for _ in options.rounds(&format!("behind closed keys in {name}")) {
            for fixture in &fixtures {
                let mut row = table.row(&[&fixture.name, &name]);
                fixture.arrivals(&mut row, options.turn).await?;
                fixture.claims(&mut row).await?;
            }
        }
    }
    Ok(table)
}

impl Fixture {
    async fn start(program: &Path, store: Store, waiting: usize) -> Result<Self> {
        let testbed = Testbed::start(program, store).await?;
        let mut api = testbed.connect().await?;
        let mut name = "alone".to_owned();
        if waiting > 0 {
            name = format!("beside {TENANTS} keys without room, {waiting} jobs");
            eprintln!("{waiting} jobs of {TENANTS} tenants are made");
            let jobs = (waiting / TENANTS).clamp(1, MAX_JOBS_PER_WORKFLOW);
            let one = |at| limited(jobs, &limit("daily", at % TENANTS), None);
            api.create((0..waiting / jobs).map(one)).await?;
            exhaust_limits(&mut api).await?;
        }
        Ok(Self {
            name,
            testbed,
            start: Instant::now(),
        })
    }

    /// Measures the wait of arriving jobs.
    async fn arrivals(&self, row: &mut RowFigures<'_>, time: Duration) -> Result<()> {
        let expected = (time.as_micros() / ARRIVAL_INTERVAL.as_micros()).max(1) as usize;
        let max = 10 * time;
        let late = || format!("{}: {expected} jobs took longer than {max:?}", self.name);
        let waits = timeout(max + ARRIVAL_INTERVAL * 200, self.waits(expected));
        let mut waits = waits.await.with_context(late)??;
        let came = waits.len();
        ensure!(came == expected, "{came} of {expected} jobs came");
        row.add_times("wait", &mut waits);
        row.add("longest wait, ms", 1, percentile(&mut waits, 1.0));
        Ok(())
    }

    /// Returns the waits of arriving jobs in milliseconds. There are more workers than needed, so
    /// that one always waits.
    async fn waits(&self, jobs: usize) -> Result<Vec<f64>> {
        let apis = [self.testbed.server.api];
        let start = self.start;
        let make = create_jobs(ApiClient::connect(apis[0]).await?, jobs, start);
        let waits = Rc::new(RefCell::new(Vec::with_capacity(jobs)));
        let seen = waits.clone();
        let workers = WorkerPool {
            workers: 4,
            limit: 1,
        };
        let work = workers.run(&apis, jobs, move |job| {
            let due = job.params.due.map(Duration::from_micros);
            let wait = due.map(|due| millis(start.elapsed().saturating_sub(due)));
            seen.borrow_mut().extend(wait);
        });
        tokio::try_join!(make, work)?;
        Ok(waits.take())
    }

    /// Measures one worker that claims ready jobs in sequence. Reports are not counted.
    async fn claims(&self, row: &mut RowFigures<'_>) -> Result<()> {
        let mut api = self.testbed.connect().await?;
        let one = limited(1, &limit("open", 0), None);
        api.create_many(&one, CLAIMED_JOBS).await?;
        let claim = claim("default", 0, 1, "0s");
        let (mut times, mut answers) = (Vec::new(), Vec::new());
        let mut meter = Meter::start(&self.testbed)?;
        for _ in 0..CLAIMED_JOBS {
            let start = Instant::now();
            answers.push(api.claim(&claim).await?);
            times.push(millis(start.elapsed()));
        }
        let spent = meter.read()?;
        for answer in &answers {
            api.report(&answer.job()?, "null").await?;
        }
        row.add_times("claim", &mut times);
        spent.add_to(row, "claim", CLAIMED_JOBS as u64);
        spent.add_commands_to(row, "claim", CLAIMED_JOBS as u64);
        Ok(())
    }
}

/// Creates a job in each interval. Its time counts from its due time: a server that does not answer
/// is charged for all jobs that should have arrived in the meantime.
async fn create_jobs(mut maker: ApiClient, jobs: usize, start: Instant) -> Result<()> {
    let first = start.elapsed();
    let mut ticks = interval(ARRIVAL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for at in 0..jobs {
        ticks.tick().await;
        let due = first + ARRIVAL_INTERVAL * at as u32;
        let one = limited(1, &limit("open", 0), Some(due.as_micros() as u64));
        maker.post("/v1/workflows", one).await?;
    }
    Ok(())
}

/// Claims the one job that each tenant has room for.
async fn exhaust_limits(api: &mut ApiClient) -> Result<()> {
    let claim = claim("default", 0, TENANTS, "0s");
    let mut used = 0;
    while used < TENANTS {
        let claimed = api.claim(&claim).await?;
        let jobs = claimed.jobs()?;
        ensure!(!jobs.is_empty(), "{used} of {TENANTS} keys gave a job");
        used += jobs.len();
        api.report(&jobs, "null").await?;
    }
    Ok(())
}
