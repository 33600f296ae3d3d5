//! Jobs that were taken out of the queues and are being claimed.

use crate::engine::desk::answer::Answer;
use crate::engine::error::EngineError;
use crate::engine::queues::{Known, Queues, Taken};

/// Jobs that were taken out of the queues. The queues are told how their claims ended, also when this is dropped early.
pub(super) struct Settling<'a> {
    queues: &'a Queues,
    taken: Vec<Taken>,
    asked: Asked,
}

/// Whether the desks were asked for the jobs. If they were, the claims take place even when the caller has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    NotYet,
    Yes,
}

impl<'a> Settling<'a> {
    pub(super) fn new(queues: &'a Queues, taken: Vec<Taken>) -> Self {
        Self { queues, taken, asked: Asked::NotYet }
    }

    /// The jobs that were taken out.
    pub(super) fn jobs(&self) -> &[Taken] {
        &self.taken
    }

    pub(super) fn add(&mut self, taken: Vec<Taken>) {
        self.taken.extend(taken);
    }

    /// From here on the desks are asked for the jobs.
    pub(super) fn asked(mut self) -> Self {
        self.asked = Asked::Yes;
        self
    }

    /// Tells the queues how the claims ended.
    pub(super) fn settle(mut self, answers: Vec<Result<Answer, EngineError>>) -> Vec<Result<Answer, EngineError>> {
        for (taken, answer) in std::mem::take(&mut self.taken).iter().zip(&answers) {
            let known = match answer {
                Ok(_) => Known::Yes,
                // The job was not ready any more, or it is unknown whether the claim was written.
                Err(_) => Known::No,
            };
            self.queues.settle(taken, known);
        }
        answers
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let queues = self.queues;
        self.taken.iter().for_each(|taken| match self.asked {
            Asked::NotYet => queues.put_back(taken),
            Asked::Yes => queues.settle(taken, Known::No),
        });
    }
}
