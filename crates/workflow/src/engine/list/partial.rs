//! Reads of many partitions, some of which may not answer. The answer has the others and lists the
//! missing ones.

use std::collections::BTreeMap;

use crate::codec::StoreError;
use crate::engine::{Engine, MissedWork, StoreFailure, StoreOperation};
use crate::model::Partition;
use crate::store::RowRange;

/// Partitions that an answer lacks, each with the reason. Empty if the answer is complete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MissingPartitions(pub BTreeMap<Partition, StoreError>);

/// Results of some partitions, and the partitions without an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartialResult<T> {
    /// Results of the partitions that answered.
    pub found: T,
    /// Partitions without an answer.
    pub missing: MissingPartitions,
}

impl MissingPartitions {
    /// Whether nothing is missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl Engine {
    /// Returns the partitions to be read, and those that are known not to answer. If none is known
    /// to answer, all are to be read.
    pub(crate) fn readable_partitions(&self) -> (Vec<Partition>, MissingPartitions) {
        let unreadable = self.core.context.store_health.unreadable();
        let all = self.store().all_partitions();
        if unreadable.len() < usize::from(self.store().partitions()) {
            (
                all.filter(|partition| !unreadable.contains_key(partition))
                    .collect(),
                MissingPartitions(unreadable),
            )
        } else {
            (all.collect(), MissingPartitions::default())
        }
    }

    /// Splits answers into those of partitions that answered, and partitions that did not.
    ///
    /// # Errors
    /// None of the partitions has answered.
    pub(crate) fn split_answers<T>(
        &self,
        partitions: &[Partition],
        answers: Vec<Result<T, StoreError>>,
    ) -> Result<(Vec<(Partition, T)>, MissingPartitions), StoreError> {
        let mut found = Vec::with_capacity(answers.len());
        let mut missing = BTreeMap::new();
        for (&partition, answer) in partitions.iter().zip(answers) {
            self.core
                .context
                .store_health
                .record(partition, StoreOperation::Read, answer.as_ref());
            match answer {
                Ok(answer) => found.push((partition, answer)),
                Err(error) => _ = missing.insert(partition, error),
            }
        }
        match missing.first_key_value() {
            Some((_, error)) if found.is_empty() => Err(error.clone()),
            _ => Ok((found, MissingPartitions(missing))),
        }
    }

    /// Splits answers of queries, of which several may be for one partition. Each answer has the
    /// index of its query.
    ///
    /// # Errors
    /// No query has an answer.
    pub(crate) fn split_indexed_answers<T>(
        &self,
        partitions: &[Partition],
        answers: Vec<Result<T, StoreError>>,
        missing: &mut MissingPartitions,
    ) -> Result<Vec<(usize, T)>, StoreError> {
        let indexed = (0..)
            .zip(answers)
            .map(|(at, answer)| answer.map(|answer| (at, answer)));
        let (found, others) = self.split_answers(partitions, indexed.collect())?;
        missing.add(others);
        Ok(found.into_iter().map(|(_, found)| found).collect())
    }

    /// Returns the sums of the partitions' counts. Adds partitions that do not answer to `missing`.
    ///
    /// # Errors
    /// No partition answers.
    pub(crate) async fn sum_counts(
        &self,
        ranges: &[RowRange],
        missing: &mut MissingPartitions,
    ) -> Result<Vec<u64>, StoreError> {
        let (partitions, unreadable) = self.readable_partitions();
        missing.add(unreadable);
        let counts = self.store().count(ranges, &partitions).await;
        let (found, others) = self.split_answers(&partitions, counts)?;
        missing.add(others);
        let mut sums = vec![0; ranges.len()];
        for (_, counts) in found {
            sums.iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
        }
        Ok(sums)
    }

    /// Returns the partitions in which an operation of the store fails at the moment.
    #[must_use]
    pub fn store_failures(&self) -> BTreeMap<Partition, StoreFailure> {
        self.core.context.store_health.failures()
    }

    /// Waits until an operation that worked has failed. Only one task at a time may wait.
    ///
    /// # Cancellation
    /// Nothing is lost when the future is dropped.
    pub async fn wait_for_store_failure(&self) {
        self.core.context.store_health.next_failure().await;
    }

    /// Returns work that was due and not done since the previous call.
    #[must_use]
    pub fn take_missed_work(&self) -> Option<MissedWork> {
        self.core.context.store_health.take_missed_work()
    }

    /// Probes whether the store serves a partition, and records the answer.
    pub async fn probe(&self, partition: Partition) {
        let probe = self.store().probe(partition).await;
        self.core
            .context
            .store_health
            .record_probe(partition, &probe);
    }
}
