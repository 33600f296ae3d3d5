//! The limits of the jobs of a graph. Jobs with equal limits share them.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{Limit, Limits, ResolvedLimits, allocation_bytes};
use crate::model::JobIndex;

/// The limits of a graph's jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobLimits {
    distinct: Box<[Arc<Limits>]>,
    /// For each job, the index of its limits plus one; zero if it has none.
    indexes: Box<[u32]>,
    /// For each job, the number of its first limits that come from its queue and handler. Empty if
    /// there are none, or if the graph was decoded from a record, which does not contain the
    /// numbers.
    inherited: Box<[u8]>,
}

impl JobLimits {
    /// The limits of each job, in the order of the jobs. `None` if no job has any.
    pub(crate) fn new(resolved_limits: Vec<Option<ResolvedLimits>>) -> Option<Box<Self>> {
        if resolved_limits.iter().all(Option::is_none) {
            return None;
        }
        let inherited = inherited_counts(&resolved_limits);
        let mut index_by_limits: HashMap<Arc<Limits>, u32> = HashMap::new();
        let mut distinct = Vec::new();
        let mut indexes = Vec::with_capacity(resolved_limits.len());
        for resolved in resolved_limits {
            indexes.push(resolved.map_or(0, |ResolvedLimits { limits, .. }| {
                *index_by_limits
                    .entry(Arc::new(limits))
                    .or_insert_with_key(|limits| {
                        distinct.push(Arc::clone(limits));
                        distinct.len() as u32
                    })
            }));
        }
        Some(Box::new(Self {
            distinct: distinct.into(),
            indexes: indexes.into(),
            inherited,
        }))
    }

    /// The limits that the author gave to a job.
    pub(super) fn own_limits(&self, job: JobIndex) -> &[Limit] {
        let inherited = self
            .inherited
            .get(job.index())
            .map_or(0, |inherited| usize::from(*inherited));
        self.for_job(job)
            .map_or(&[], |limits| &limits.as_slice()[inherited..])
    }

    pub(super) fn for_job(&self, job: JobIndex) -> Option<&Arc<Limits>> {
        let place = self.indexes.get(job.index())?.checked_sub(1)?;
        self.distinct.get(place as usize)
    }

    /// The distinct limit keys, each with the indexes of its jobs, ascending.
    pub(crate) fn jobs_by_key(&self) -> Vec<(&str, Vec<JobIndex>)> {
        let mut all: Vec<(&str, Vec<JobIndex>)> = self
            .distinct
            .iter()
            .map(|limits| (limits.key(), Vec::new()))
            .collect();
        for (at, place) in self
            .indexes
            .iter()
            .enumerate()
            .filter(|(_, place)| **place > 0)
        {
            all[*place as usize - 1].1.push(JobIndex(at as u32));
        }
        all
    }

    /// Decodes the result of [`JobLimits::jobs_by_key`] for a graph of `jobs` jobs. `None` if it is
    /// invalid.
    pub(crate) fn from_keys(all: &[(String, Vec<JobIndex>)], jobs: usize) -> Option<Box<Self>> {
        let mut distinct = Vec::with_capacity(all.len());
        let mut indexes = vec![0; jobs];
        for (key, jobs) in all {
            distinct.push(Arc::new(Limits::parse(key)?));
            for job in jobs {
                *indexes.get_mut(job.index())? = distinct.len() as u32;
            }
        }
        Some(Box::new(Self {
            distinct: distinct.into(),
            indexes: indexes.into(),
            inherited: Box::default(),
        }))
    }

    /// Bytes in memory.
    pub(super) fn allocated_bytes(&self) -> usize {
        allocation_bytes(size_of::<Self>())
            + allocation_bytes(size_of_val(&*self.distinct))
            + self
                .distinct
                .iter()
                .map(|limits| limits.allocated_bytes())
                .sum::<usize>()
            + allocation_bytes(size_of_val(&*self.indexes))
            + allocation_bytes(self.inherited.len())
    }
}

/// The number of inherited limits of each job. Empty if no job inherits any.
fn inherited_counts(resolved_limits: &[Option<ResolvedLimits>]) -> Box<[u8]> {
    let count = |resolved: &Option<ResolvedLimits>| {
        resolved
            .as_ref()
            .map_or(0, |resolved| resolved.inherited as u8)
    };
    let counts = resolved_limits.iter().map(count);
    if counts.clone().all(|count| count == 0) {
        return Box::default();
    }
    counts.collect()
}
