//! Jobs that were taken out of the queues and are being claimed.

use crate::engine::actor::answer::Answer;
use crate::engine::error::EngineError;
use crate::engine::queues::{ClaimEnd, DequeuedJob, QueueCache};
use crate::store::error::StoreError;

/// Jobs that were taken out of the queues. The queues are told how their claims ended, also when this is dropped early.
pub(in crate::engine) struct PendingClaims<'a> {
    queues: &'a QueueCache,
    taken: Vec<DequeuedJob>,
    asked: Submission,
}

/// Whether the desks were asked for the jobs. If they were, the claims take place even when the caller has left.
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

    /// The jobs that were taken out.
    pub(in crate::engine) fn jobs(&self) -> &[DequeuedJob] {
        &self.taken
    }

    pub(super) fn add(&mut self, taken: Vec<DequeuedJob>) {
        self.taken.extend(taken);
    }

    /// Puts the others back.
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

    /// The jobs, for somebody else who settles them.
    pub(in crate::engine) fn into_jobs(mut self) -> Vec<DequeuedJob> {
        std::mem::take(&mut self.taken)
    }

    /// From here on the desks are asked for the jobs.
    pub(super) fn asked(mut self) -> Self {
        self.asked = Submission::Sent;
        self
    }

    /// Tells the queues how the claims ended.
    pub(super) fn resolve(mut self, answers: &[Result<Answer, EngineError>]) {
        for (taken, answer) in std::mem::take(&mut self.taken).iter().zip(answers) {
            self.settle_one(taken, answer);
        }
    }

    fn settle_one(&self, taken: &DequeuedJob, answer: &Result<Answer, EngineError>) {
        let queues = self.queues;
        match answer {
            Ok(_) => queues.finish_claim(taken, ClaimEnd::Leased),
            // The job was not ready any more, and who changed that removes the row.
            Err(EngineError::NoWorkflow { .. } | EngineError::Refused(_)) => {
                queues.finish_claim(taken, ClaimEnd::Unknown);
                queues.note_orphan(taken);
            }
            // Nothing was written, for a reason that is not the store's: others who wait may have the job at once.
            Err(EngineError::Overloaded | EngineError::Contended { .. } | EngineError::Closed) => {
                queues.requeue(taken)
            }
            Err(EngineError::Store(error @ StoreError::Corrupt { .. })) => {
                queues.finish_claim(taken, ClaimEnd::Unknown);
                queues.pass_over(taken.workflow(), error);
            }
            // Who waits is woken by the next sweep: with a store that fails, one after the other would be told so at once.
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
