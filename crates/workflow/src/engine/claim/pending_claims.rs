//! Jobs that were dequeued and are being claimed.

use crate::engine::actor::answer::Answer;
use crate::engine::error::EngineError;
use crate::engine::queues::{ClaimEnd, DequeuedJob, QueueCache};
use crate::store::error::StoreError;

/// Dequeued jobs of a claim. The queues get the outcome of each, also if this is dropped early.
pub(in crate::engine) struct PendingClaims<'a> {
    queues: &'a QueueCache,
    taken: Vec<DequeuedJob>,
    asked: Submission,
}

/// Whether requests for the jobs were sent to actors. If so, the claims take place even if the
/// caller has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Submission {
    NotSent,
    Sent,
}

impl<'a> PendingClaims<'a> {
    pub(super) fn new(queues: &'a QueueCache, taken: Vec<DequeuedJob>) -> Self {
        Self {
            queues,
            taken,
            asked: Submission::NotSent,
        }
    }

    /// The dequeued jobs.
    pub(in crate::engine) fn jobs(&self) -> &[DequeuedJob] {
        &self.taken
    }

    pub(super) fn add(&mut self, taken: Vec<DequeuedJob>) {
        self.taken.extend(taken);
    }

    /// Requeues the jobs that `keep` excludes. Jobs behind its end are kept.
    pub(in crate::engine) fn put_back_unless(&mut self, keep: &[bool]) {
        let queues = self.queues;
        let mut keep = keep.iter();
        self.taken.retain(|taken| {
            let keep = keep.next().is_none_or(|keep| *keep);
            if !keep {
                queues.requeue(taken);
            }
            keep
        });
    }

    /// Returns the jobs to a caller that finishes their claims itself.
    pub(in crate::engine) fn into_jobs(mut self) -> Vec<DequeuedJob> {
        std::mem::take(&mut self.taken)
    }

    /// Marks the requests for the jobs as sent.
    pub(super) fn asked(mut self) -> Self {
        self.asked = Submission::Sent;
        self
    }

    /// Passes the outcome of each claim to the queues.
    pub(super) fn resolve(mut self, answers: &[Result<Answer, EngineError>]) {
        for (taken, answer) in std::mem::take(&mut self.taken).iter().zip(answers) {
            self.settle_one(taken, answer);
        }
    }

    fn settle_one(&self, taken: &DequeuedJob, answer: &Result<Answer, EngineError>) {
        let queues = self.queues;
        match answer {
            Ok(_) => queues.finish_claim(taken, ClaimEnd::Leased),
            // The job was not ready any more, and the server that changed it removes the row.
            Err(EngineError::NoWorkflow { .. } | EngineError::Refused(_)) => {
                queues.finish_claim(taken, ClaimEnd::Unknown);
                queues.note_orphan(taken);
            }
            // Nothing was written, and the store is not the reason: other waiting workers may get
            // the job at once.
            Err(EngineError::Overloaded | EngineError::Contended { .. } | EngineError::Closed) => {
                queues.requeue(taken)
            }
            Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => {
                queues.finish_claim(taken, ClaimEnd::Unknown);
                queues.pass_over(taken.workflow(), error);
            }
            // The next sweep wakes a waiting worker. To wake them here would make one after the
            // other fail while the store fails.
            Err(EngineError::Store(_)) => queues.finish_claim(taken, ClaimEnd::Failed),
            Err(_) => queues.finish_claim(taken, ClaimEnd::Unknown),
        }
    }
}

impl Drop for PendingClaims<'_> {
    fn drop(&mut self) {
        let queues = self.queues;
        self.taken.iter().for_each(|taken| match self.asked {
            Submission::NotSent => queues.requeue(taken),
            Submission::Sent => queues.finish_claim(taken, ClaimEnd::Unknown),
        });
    }
}
