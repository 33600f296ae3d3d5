//! No-op workers: they claim jobs and report them as done.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::LocalSet;

use super::api::{ApiClient, Job, claim};
use crate::machine::Testbed;

/// Workers on separate connections. Each has one request in progress.
pub(crate) struct WorkerPool {
    pub(crate) workers: usize,
    /// Number of jobs of one claim.
    pub(crate) limit: usize,
}

/// Runs workers at several servers in rotation until `jobs` jobs were claimed and reported. Returns
/// the time.
pub(crate) async fn run_all_jobs(apis: &[SocketAddr], jobs: usize) -> Result<Duration> {
    let pool = WorkerPool {
        workers: 8,
        limit: 100,
    };
    pool.run(apis, jobs, |_| {}).await
}

impl Testbed {
    /// Runs workers at the server until `jobs` jobs were claimed and reported. Returns the time.
    pub(crate) async fn run_all_jobs(&self, jobs: usize) -> Result<Duration> {
        run_all_jobs(&[self.server.api], jobs).await
    }

    /// Connects to the API of the server as soon as it is open.
    pub(crate) async fn connect(&self) -> Result<ApiClient> {
        ApiClient::connect(self.server.api).await
    }
}

impl WorkerPool {
    /// Runs the workers until `jobs` jobs were claimed and reported, and passes each claimed job to
    /// `on_job`.
    pub(crate) async fn run(
        self,
        apis: &[SocketAddr],
        jobs: usize,
        on_job: impl Fn(&Job<'_>) + Clone + 'static,
    ) -> Result<Duration> {
        let start = Instant::now();
        let left = Rc::new(Cell::new(jobs));
        let local = LocalSet::new();
        let mut workers = Vec::new();
        for number in 0..self.workers {
            let api = ApiClient::connect(apis[number % apis.len()]).await?;
            let claim = claim("default", number, self.limit, "100ms");
            let worker = work(api, claim, Rc::clone(&left), on_job.clone());
            workers.push(local.spawn_local(worker));
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
}

/// Claims and reports jobs until no job is left.
async fn work(
    mut api: ApiClient,
    claim: String,
    left: Rc<Cell<usize>>,
    on_job: impl Fn(&Job<'_>),
) -> Result<()> {
    let mut claimed = api.claim(&claim).await?;
    loop {
        let jobs = claimed.jobs()?;
        left.set(left.get().saturating_sub(jobs.len()));
        jobs.iter().for_each(&on_job);
        claimed = if !jobs.is_empty() {
            api.report(&jobs, &claim).await?
        } else if left.get() > 0 {
            api.claim(&claim).await?
        } else {
            return Ok(());
        };
    }
}
