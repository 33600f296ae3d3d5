//! Workers that take one job at a time and are busy with it for a while, so that they have a constant capacity.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::tenants::Clock;
use crate::workflow::api::Api;

/// So many workers.
#[derive(Clone, Copy)]
pub(super) struct Crew {
    pub(super) workers: usize,
    /// How long each is busy with a job.
    pub(super) busy: Duration,
}

/// A job as a worker got it.
#[derive(Deserialize)]
pub(super) struct Job<'a> {
    pub(super) lease: &'a str,
    #[serde(borrow)]
    pub(super) params: Params<'a>,
}

#[derive(Deserialize)]
pub(super) struct Params<'a> {
    pub(super) tenant: &'a str,
    #[serde(default)]
    pub(super) made: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Jobs<'a> {
    #[serde(borrow)]
    pub(super) jobs: Vec<Job<'a>>,
}

/// A job that a worker got.
pub(super) struct Seen {
    pub(super) tenant: Box<str>,
    /// When it was claimed.
    pub(super) at: Instant,
    /// From the request that made it, if that was noted.
    pub(super) waited_ms: Option<f64>,
}

/// What workers share.
struct Shift<E> {
    clock: Clock,
    seen: RefCell<Vec<Seen>>,
    /// How many of them were timed.
    timed: Cell<usize>,
    enough: E,
    over: Cell<bool>,
}

impl Crew {
    /// Works, at these servers in turn, until so many jobs that say when they were made are `enough`, which is asked after each claim.
    pub(super) async fn work(
        self,
        apis: &[SocketAddr],
        clock: Clock,
        enough: impl Fn(usize) -> bool + 'static,
    ) -> anyhow::Result<Vec<Seen>> {
        let shift = Rc::new(Shift {
            clock,
            seen: RefCell::default(),
            timed: Cell::new(0),
            enough,
            over: Cell::new(false),
        });
        let local = LocalSet::new();
        let mut workers = Vec::new();
        for number in 0..self.workers {
            let api = Api::connect(apis[number % apis.len()]).await?;
            workers.push(local.spawn_local(worker(api, number, self.busy, Rc::clone(&shift))));
        }
        local
            .run_until(async {
                for worker in workers {
                    worker.await??;
                }
                anyhow::Ok(())
            })
            .await?;
        Ok(shift.seen.take())
    }
}

/// Claims a job, is busy with it, reports it with the next claim, until it is enough.
async fn worker(
    mut api: Api,
    number: usize,
    busy: Duration,
    shift: Rc<Shift<impl Fn(usize) -> bool>>,
) -> anyhow::Result<()> {
    let wish = format!(r#"{{"queues":["default"],"worker":"w{number}","limit":1,"wait":"200ms"}}"#);
    let mut answer = api.post("/v1/jobs/claim", wish.clone()).await?;
    loop {
        let Jobs { jobs } = serde_json::from_slice(&answer)?;
        let now = shift.clock.micros();
        shift.seen.borrow_mut().extend(jobs.iter().map(|job| {
            Seen {
                tenant: job.params.tenant.into(),
                at: Instant::now(),
                waited_ms: job
                    .params
                    .made
                    .map(|made| now.saturating_sub(made) as f64 / 1_000.0),
            }
        }));
        shift
            .timed
            .set(shift.timed.get() + jobs.iter().filter(|job| job.params.made.is_some()).count());
        if !shift.over.get() && (shift.enough)(shift.timed.get()) {
            shift.over.set(true);
        }
        let wish = if shift.over.get() { "null" } else { &wish };
        answer = match jobs.first() {
            None if shift.over.get() => return Ok(()),
            None => api.post("/v1/jobs/claim", wish.to_owned()).await?,
            Some(_) => {
                if !busy.is_zero() {
                    sleep(busy).await;
                }
                api.post("/v1/jobs/report", report(&jobs, wish)).await?
            }
        };
        if shift.over.get() {
            return Ok(());
        }
    }
}

/// The body of a report on jobs that all succeeded.
pub(super) fn report(jobs: &[Job<'_>], wish: &str) -> String {
    let each: Vec<String> = jobs
        .iter()
        .map(|job| format!(r#"{{"lease":"{}","outcome":"succeeded"}}"#, job.lease))
        .collect();
    format!(r#"{{"reports":[{}],"claim":{wish}}}"#, each.join(","))
}
