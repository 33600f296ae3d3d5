//! Workers that do nothing but claim jobs and report them as done.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::LocalSet;

use super::api::{Api, Work, report};

/// Connections of workers. Each has one request under way.
pub(crate) const WORKERS: usize = 8;
/// Jobs that a worker asks for at a time.
pub(crate) const LIMIT: usize = 100;

/// Works until `jobs` jobs were claimed and reported. Returns how long it took.
pub(crate) async fn work(api: SocketAddr, jobs: usize) -> anyhow::Result<Duration> {
    work_at(&[api], jobs).await
}

/// [`work`] with workers at several servers, as many at each.
pub(crate) async fn work_at(apis: &[SocketAddr], jobs: usize) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let left = Rc::new(Cell::new(jobs));
    let local = LocalSet::new();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        workers.push(local.spawn_local(worker(
            Api::connect(apis[number % apis.len()]).await?,
            number,
            left.clone(),
        )));
    }
    local
        .run_until(async {
            for worker in workers {
                worker.await??;
            }
            anyhow::Ok(())
        })
        .await?;
    Ok(start.elapsed())
}

/// Claims, does nothing, reports and claims again until nobody has anything left to do.
async fn worker(mut api: Api, number: usize, left: Rc<Cell<usize>>) -> anyhow::Result<()> {
    let wish =
        format!(r#"{{"queues":["default"],"worker":"w{number}","limit":{LIMIT},"wait":"100ms"}}"#);
    let mut answer = api.post("/v1/jobs/claim", wish.clone()).await?;
    loop {
        let work: Work<'_> = serde_json::from_slice(&answer)?;
        left.set(left.get().saturating_sub(work.jobs.len()));
        if work.jobs.is_empty() && left.get() == 0 {
            return Ok(());
        }
        answer = match work.jobs.is_empty() {
            true => api.post("/v1/jobs/claim", wish.clone()).await?,
            false => api.post("/v1/jobs/report", report(&work, &wish)).await?,
        };
    }
}
