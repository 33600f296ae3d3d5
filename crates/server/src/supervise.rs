//! Supervision: the signals for every task and thread, the detection of unexpected ends, and the
//! wait at shutdown.
//!
//! **Invariant:** no part of the server ends unnoticed. An unexpected end turns health off at once.
//! Then the part is started again, a bounded number of times, or the server ends.

pub(crate) mod error;
pub(crate) mod failpoint;
pub(crate) mod health;
pub(crate) mod notify;
pub(crate) mod runtime;

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

use self::runtime::ThreadRuntime;
use crate::base::clock;
use crate::base::sync::lock;
use crate::supervise::health::Health;

/// Maximum of restarts of a part within [`RESTART_WINDOW`]. A part that fails more often has a
/// lasting fault.
const MAX_RESTARTS: usize = 3;
/// The time in which restarts count, see [`MAX_RESTARTS`].
const RESTART_WINDOW: Duration = Duration::from_secs(60);
/// Delay before a part is started again: load balancers that probe every second notice that health
/// is off.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Signals tasks and threads to end, waits for them, and detects unexpected ends. Clones share one
/// state.
#[derive(Debug, Clone)]
pub(crate) struct Supervisor {
    /// Cancelled first: tasks finish the work that they began, and begin no other.
    pub(crate) drain: CancellationToken,
    /// Cancelled last: tasks stop at once.
    pub(crate) stop: CancellationToken,
    /// Every task of the server, except those of single calls: their connection waits for them.
    pub(crate) tasks: TaskTracker,
    health: Health,
    /// The first unexpected end.
    ended: Arc<watch::Sender<Option<UnexpectedEnd>>>,
    threads: Arc<Mutex<Vec<SupervisedThread>>>,
}

/// A thread of the server.
#[derive(Debug)]
struct SupervisedThread {
    part: Arc<str>,
    handle: JoinHandle<()>,
    /// Closed when the thread has done its work.
    done: oneshot::Receiver<()>,
}

impl Supervisor {
    /// Creates a supervisor that turns `health` off if a part ends unexpectedly.
    pub(crate) fn new(health: Health) -> Self {
        Self {
            drain: CancellationToken::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            health,
            ended: Arc::default(),
            threads: Arc::default(),
        }
    }

    /// Runs `work` as a task of the current runtime. The server ends if it panics, or returns
    /// before the drain.
    pub(crate) fn task(&self, part: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks
            .spawn(self.clone().run_guarded(part.into(), work));
    }

    /// Runs `work` as a task, and drops it when the server drains.
    pub(crate) fn task_until_drain(
        &self,
        part: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let drain = self.drain.clone();
        self.task(part, async move {
            drain.run_until_cancelled(work).await;
        });
    }

    /// Runs `main` on a new thread. The server ends if it panics, or returns before the drain.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn thread(
        &self,
        part: impl Into<Arc<str>>,
        main: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let part = part.into();
        let guard = EndGuard {
            part: part.clone(),
            supervisor: self.clone(),
        };
        self.spawn(part, move || {
            let _guard = guard;
            main();
        })
    }

    /// Runs `work` on a new thread, and again if it panics or returns before the drain. If that
    /// happens too often, the server ends.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn restarting_thread(
        &self,
        part: impl Into<Arc<str>>,
        mut work: impl FnMut() + Send + 'static,
    ) -> io::Result<()> {
        let part = part.into();
        let name = part.clone();
        let supervisor = self.clone();
        self.spawn(part, move || {
            let mut restarts = Vec::new();
            loop {
                let how = match catch_unwind(AssertUnwindSafe(&mut work)) {
                    Ok(()) if supervisor.drain.is_cancelled() => return,
                    Ok(()) => EndCause::Returned,
                    Err(_) => EndCause::Panicked,
                };
                let ended = UnexpectedEnd {
                    part: name.clone(),
                    how,
                };
                if !supervisor.may_restart(&mut restarts, Instant::now())
                    || !supervisor.wait_before_restart(&ended)
                {
                    return supervisor.report_end(ended);
                }
                if supervisor.drain.is_cancelled() {
                    return;
                }
            }
        })
    }

    fn spawn(&self, part: Arc<str>, main: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let (done_sender, done) = oneshot::channel::<()>();
        let handle = thread::Builder::new()
            .name(part.to_string())
            .spawn(move || {
                let _done_sender = done_sender;
                main();
            })?;
        lock(&self.threads).push(SupervisedThread { part, handle, done });
        Ok(())
    }

    /// Runs `work`, and reports its end if it is unexpected.
    async fn run_guarded(self, part: Arc<str>, work: impl Future<Output = ()>) {
        let work = failpoint::with(part.clone(), work);
        let _guard = EndGuard {
            part,
            supervisor: self,
        };
        work.await;
    }

    /// Waits for the first unexpected end. Without one, it waits for ever.
    pub(crate) async fn wait_for_failure(&self) -> UnexpectedEnd {
        let mut ended = self.ended.subscribe();
        match ended
            .wait_for(Option::is_some)
            .await
            .map(|ended| ended.clone())
        {
            Ok(Some(ended)) => ended,
            _ => std::future::pending().await,
        }
    }

    /// Returns the first unexpected end.
    pub(crate) fn first_failure(&self) -> Option<UnexpectedEnd> {
        self.ended.borrow().clone()
    }

    /// Reports that a part has ended and is not started again.
    pub(crate) fn report_end(&self, ended: UnexpectedEnd) {
        self.health.stopping(clock::workflow_now());
        error!("{ended}; the server cannot go on without it and ends");
        self.ended
            .send_if_modified(|first| first.is_none() && first.replace(ended).is_none());
    }

    /// Whether a part may be started again at `now`. `restarts` are the times of earlier restarts.
    fn may_restart(&self, restarts: &mut Vec<Instant>, now: Instant) -> bool {
        restarts.retain(|at| now.duration_since(*at) < RESTART_WINDOW);
        restarts.push(now);
        restarts.len() <= MAX_RESTARTS && !self.drain.is_cancelled()
    }

    /// Waits before a part is started again, with health off. Returns false if it cannot wait.
    fn wait_before_restart(&self, ended: &UnexpectedEnd) -> bool {
        let _unhealthy = self.health.mark_unhealthy();
        warn!("{ended}; it is started again, and health is off until then");
        let Ok(runtime) = ThreadRuntime::new() else {
            return false;
        };
        runtime.block_on(async {
            tokio::select! {
                () = sleep(RESTART_DELAY) => {}
                () = self.drain.cancelled() => {}
            }
        });
        true
    }

    /// Waits for all threads, for `bound` at most. The end of the process stops the other threads.
    pub(crate) async fn join(&self, bound: Duration) {
        let deadline = tokio::time::Instant::now() + bound;
        let threads = std::mem::take(&mut *lock(&self.threads));
        for SupervisedThread { part, handle, done } in threads {
            // No message is sent: the channel closes at the end of the thread.
            match timeout_at(deadline, done).await {
                // Its work is done, so the join does not wait. A panic was reported when it
                // happened.
                Ok(_) => drop(handle.join()),
                Err(_) => {
                    warn!(
                        thread = &*part,
                        "a thread does not end, for example because the system keeps it waiting"
                    )
                }
            }
        }
    }
}

/// The unexpected end of a part of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnexpectedEnd {
    /// The name of its thread or task.
    pub part: Arc<str>,
    /// The cause of the end.
    pub how: EndCause,
}

/// The cause of an unexpected end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// It panicked. The panic's message is on standard error.
    Panicked,
    /// It returned.
    Returned,
}

impl fmt::Display for UnexpectedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.how {
            EndCause::Panicked => "panicked",
            EndCause::Returned => "ended unexpectedly",
        };
        write!(f, "the part '{}' of the server {how}", self.part)
    }
}

/// Reports the end of a part that is not started again.
#[derive(Debug)]
struct EndGuard {
    part: Arc<str>,
    supervisor: Supervisor,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        let how = if thread::panicking() {
            EndCause::Panicked
        } else {
            EndCause::Returned
        };
        if how == EndCause::Panicked || !self.supervisor.drain.is_cancelled() {
            self.supervisor.report_end(UnexpectedEnd {
                part: self.part.clone(),
                how,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::supervise::health::PartHealth;

    fn supervisor() -> (Supervisor, Health) {
        let health = Health::new(PartHealth::Healthy, PartHealth::Healthy);
        (Supervisor::new(health.clone()), health)
    }

    #[track_caller]
    fn check_failed(supervisor: &Supervisor, health: &Health, how: EndCause) {
        assert_eq!(
            supervisor.first_failure(),
            Some(UnexpectedEnd {
                part: "part".into(),
                how
            })
        );
        assert!(!health.serving());
    }

    #[tokio::test]
    async fn an_end_that_nobody_asked_for_turns_health_off() {
        for how in [EndCause::Panicked, EndCause::Returned] {
            let work = move || assert!(how == EndCause::Returned, "on purpose");
            let (supervisor, health) = supervisor();
            supervisor.task("part", async move { work() });
            supervisor.wait_for_failure().await;
            check_failed(&supervisor, &health, how);

            let (supervisor, health) = self::supervisor();
            supervisor.thread("part", work).unwrap();
            supervisor.wait_for_failure().await;
            check_failed(&supervisor, &health, how);
        }
    }

    #[tokio::test]
    async fn an_end_that_was_asked_for_is_none() {
        let (supervisor, health) = supervisor();
        let drain = supervisor.drain.clone();
        supervisor.task("part", async move { drain.cancelled().await });
        let (stop, stopped) = mpsc::channel::<()>();
        supervisor
            .thread("part", move || assert!(stopped.recv().is_err()))
            .unwrap();
        supervisor.drain.cancel();
        drop(stop);
        supervisor.tasks.close();
        supervisor.tasks.wait().await;
        supervisor.join(Duration::from_secs(20)).await;
        assert_eq!(supervisor.first_failure(), None);
        assert!(health.serving());
    }

    #[tokio::test]
    async fn a_part_that_can_be_repaired_is_started_again_with_health_off_in_between() {
        let (supervisor, health) = supervisor();
        let (done_sender, mut told) = tokio::sync::mpsc::channel(1);
        let mut first = true;
        let drain = supervisor.drain.clone();
        let work = move || {
            assert!(!std::mem::take(&mut first), "on purpose");
            done_sender.blocking_send(()).unwrap();
            ThreadRuntime::new().unwrap().block_on(drain.cancelled());
        };
        supervisor.restarting_thread("part", work).unwrap();
        let mut watch = health.watch();
        watch.wait_for(|serving| !serving.serving()).await.unwrap();
        told.recv().await.unwrap();
        watch.wait_for(|serving| serving.serving()).await.unwrap();
        supervisor.drain.cancel();
        supervisor.join(Duration::from_secs(20)).await;
        assert_eq!(supervisor.first_failure(), None);
    }

    #[test]
    fn repairs_are_bounded_in_their_span() {
        let (supervisor, _) = supervisor();
        let mut restarts = Vec::new();
        let start = Instant::now();
        assert!((0..3).all(|second| {
            supervisor.may_restart(&mut restarts, start + Duration::from_secs(second))
        }));
        assert!(!supervisor.may_restart(&mut restarts, start + Duration::from_secs(3)));
        assert!(supervisor.may_restart(&mut restarts, start + Duration::from_secs(62)));
    }

    /// The look-up of a name, or a file that does not answer, kept the process from ending.
    #[tokio::test]
    async fn a_thread_that_does_not_end_is_waited_for_only_so_long() {
        let (supervisor, _) = supervisor();
        let (hold, held) = mpsc::channel::<()>();
        let first = held;
        let second = mpsc::channel::<()>();
        supervisor
            .thread("stuck", move || assert!(first.recv().is_err()))
            .unwrap();
        supervisor
            .thread("also-stuck", move || assert!(second.1.recv().is_err()))
            .unwrap();
        supervisor.drain.cancel();
        supervisor.join(Duration::from_millis(50)).await;
        drop((hold, second.0));
    }
}
