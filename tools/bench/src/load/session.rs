//! A measured span of time with tasks that produce load.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::schedule::CallSchedule;
use crate::figures::{Answer, AnswerCounts, Calls};

/// Maximum wait for a first answer after the measured time.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// State that the tasks share: the time of the next call, and the answers so far.
pub(crate) struct Session {
    pub(crate) schedule: CallSchedule,
    answers: RefCell<AnswerCounts>,
}

/// The calls of a span, and the totals at both of its ends.
pub(crate) struct Span<T> {
    pub(crate) calls: Calls,
    pub(crate) before: T,
    pub(crate) after: T,
}

impl Session {
    /// Creates a session of `rate` calls a second, or of a closed loop of at most `requests`.
    pub(crate) fn new(rate: Option<f64>, requests: Option<u64>) -> Rc<Self> {
        let schedule = match rate {
            Some(rate) => CallSchedule::open(rate, Instant::now()),
            None => CallSchedule::closed(requests),
        };
        let answers = RefCell::new(AnswerCounts::new());
        Rc::new(Self { schedule, answers })
    }

    pub(crate) fn count(&self, answer: Answer, took: Duration) {
        self.answers.borrow_mut().add(answer, took);
    }

    /// Runs the tasks on the current thread, at first without counting. Ends early if all tasks
    /// end. Calls in flight at the end are dropped and not counted.
    pub(crate) async fn measure<T>(
        self: &Rc<Self>,
        mut tasks: JoinSet<()>,
        warmup: Duration,
        duration: Duration,
        totals: impl Fn() -> Result<T>,
    ) -> Result<Span<T>> {
        let session = self.clone();
        let mut schedule = JoinSet::new();
        schedule.spawn_local(async move { session.schedule.release_due().await });
        // Without a warm-up no task has run yet: a number of requests is then counted in full.
        if !warmup.is_zero() {
            sleep(warmup).await;
        }
        let before = totals()?;
        *self.answers.borrow_mut() = AnswerCounts::new();
        let start = Instant::now();
        tokio::select! {
            () = self.until_over(duration) => {}
            () = async { while tasks.join_next().await.is_some() {} } => {}
        }
        let elapsed = start.elapsed();
        let after = totals()?;
        let calls = Calls {
            answers: self.answers.borrow().clone(),
            elapsed,
            behind: self.schedule.behind(),
        };
        if let Some(Ok(kept)) = schedule.try_join_next() {
            kept?;
        }
        tasks.shutdown().await;
        schedule.shutdown().await;
        Ok(Span {
            calls,
            before,
            after,
        })
    }

    /// Waits for the end of the measured time, and for a first answer: on a busy machine a short
    /// turn may end before it.
    async fn until_over(&self, duration: Duration) {
        sleep(duration).await;
        let first_answer = async {
            while self.answers.borrow().decisions() == 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        // A server without answers shows in its empty counts.
        let _ = timeout(FIRST_ANSWER_TIMEOUT, first_answer).await;
    }
}
