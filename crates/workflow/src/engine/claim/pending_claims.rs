//! Jobs that were dequeued and are being claimed.

use crate::codec::StoreError;
use crate::engine::actor::answer::Answer;
use crate::engine::context::error::EngineError;
use crate::queue::QueueCache;
use crate::queue::cache::{ClaimEnd, DequeueRequest, DequeuedJob};

/// Dequeued jobs of a claim. The queues get the outcome of each, also if this is dropped early.
pub(in crate::engine) struct PendingClaims<'a> {
    queues: &'a QueueCache,
    dequeued: Vec<DequeuedJob>,
    submission: ClaimSubmission,
}

/// Whether requests for the jobs were sent to actors. If so, the claims take place even if the
/// caller has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimSubmission {
    NotSent,
    Sent,
}

impl<'a> PendingClaims<'a> {
    pub(super) fn new(queues: &'a QueueCache, dequeued: Vec<DequeuedJob>) -> Self {
        Self {
            queues,
            dequeued,
            submission: ClaimSubmission::NotSent,
        }
    }

    /// The dequeued jobs.
    pub(crate) fn jobs(&self) -> &[DequeuedJob] {
        &self.dequeued
    }

    /// Dequeues known jobs until there are `limit`.
    pub(super) fn fill(&mut self, request: DequeueRequest<'_>, limit: usize) {
        let missing = limit - self.dequeued.len();
        self.dequeued.extend(self.queues.dequeue(request, missing));
    }

    /// Requeues the jobs that `keep` excludes. Jobs behind its end are kept.
    pub(in crate::engine) fn requeue_unless(&mut self, keep: &[bool]) {
        let queues = self.queues;
        let mut keep = keep.iter();
        self.dequeued.retain(|dequeued| {
            let keep = keep.next().is_none_or(|keep| *keep);
            if !keep {
                queues.requeue(dequeued);
            }
            keep
        });
    }

    /// Returns the jobs to a caller that finishes their claims itself.
    pub(in crate::engine) fn into_jobs(mut self) -> Vec<DequeuedJob> {
        std::mem::take(&mut self.dequeued)
    }

    /// Marks the requests for the jobs as sent.
    pub(super) fn mark_sent(mut self) -> Self {
        self.submission = ClaimSubmission::Sent;
        self
    }

    /// Passes the outcome of each claim to the queues.
    pub(super) fn resolve(mut self, answers: &[Result<Answer, EngineError>]) {
        for (dequeued, answer) in std::mem::take(&mut self.dequeued).iter().zip(answers) {
            self.finish_one(dequeued, answer);
        }
    }

    fn finish_one(&self, dequeued: &DequeuedJob, answer: &Result<Answer, EngineError>) {
        let queues = self.queues;
        match answer {
            Ok(_) => queues.finish_claim(dequeued, ClaimEnd::Leased),
            // The job was not ready any more, and the server that changed it removes the row.
            Err(EngineError::NoWorkflow { .. } | EngineError::Refused(_)) => {
                queues.finish_claim(dequeued, ClaimEnd::Unknown);
                queues.record_orphan(dequeued);
            }
            // Nothing was written, and the store is not the reason: other waiting workers may get
            // the job at once.
            Err(EngineError::Overloaded | EngineError::Contended { .. } | EngineError::Closed) => {
                queues.requeue(dequeued)
            }
            Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => {
                queues.finish_claim(dequeued, ClaimEnd::Unknown);
                queues.quarantine_unreadable(dequeued.workflow(), error);
            }
            // The next sweep wakes a waiting worker. To wake them here would make one after the
            // other fail while the store fails.
            Err(EngineError::Store(_)) => queues.finish_claim(dequeued, ClaimEnd::Failed),
            Err(_) => queues.finish_claim(dequeued, ClaimEnd::Unknown),
        }
    }
}

impl Drop for PendingClaims<'_> {
    fn drop(&mut self) {
        let queues = self.queues;
        self.dequeued
            .iter()
            .for_each(|dequeued| match self.submission {
                ClaimSubmission::NotSent => queues.requeue(dequeued),
                ClaimSubmission::Sent => queues.finish_claim(dequeued, ClaimEnd::Unknown),
            });
    }
}
