//! Reads of many partitions, some of which may not answer: the others are served, and the answer says what is missing.

use std::collections::BTreeMap;

use super::Engine;
use super::trouble::{Asked, Trouble, Unserved};
use crate::id::Partition;
use crate::store::error::StoreError;

/// Partitions of which nothing is in an answer, each with the reason. Empty: the answer is whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing(pub BTreeMap<Partition, StoreError>);

impl Engine {
    /// What each partition answered, and those that did not answer.
    ///
    /// # Errors
    /// None of those that were asked has answered.
    pub(crate) fn answered<T>(
        &self,
        partitions: &[Partition],
        answers: Vec<Result<T, StoreError>>,
    ) -> Result<(Vec<(Partition, T)>, Missing), StoreError> {
        let mut found = Vec::with_capacity(answers.len());
        let mut missing = BTreeMap::new();
        for (&partition, answer) in partitions.iter().zip(answers) {
            self.core.context.troubles.note(partition, Asked::Read, answer.as_ref());
            match answer {
                Ok(answer) => found.push((partition, answer)),
                Err(error) => _ = missing.insert(partition, error),
            }
        }
        match missing.first_key_value() {
            Some((_, error)) if found.is_empty() => Err(error.clone()),
            _ => Ok((found, Missing(missing))),
        }
    }

    /// The partitions in which something does not work at the moment.
    #[must_use]
    pub fn troubles(&self) -> BTreeMap<Partition, Trouble> {
        self.core.context.troubles.all()
    }

    /// Returns when something that worked has failed. Only one task at a time may wait.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub async fn trouble_began(&self) {
        self.core.context.troubles.began().await;
    }

    /// Work that was due and was not done since this was asked last.
    #[must_use]
    pub fn take_unserved(&self) -> Option<Unserved> {
        self.core.context.troubles.take_unserved()
    }

    /// Asks the store whether it serves a partition, and notes the answer.
    pub async fn probe(&self, partition: Partition) {
        let probe = self.store().probe(partition).await;
        self.core.context.troubles.probed(partition, &probe);
    }
}
