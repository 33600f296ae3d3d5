//! The limits of the jobs of a graph. Jobs with equal limits share them.

use std::sync::Arc;

use hashbrown::HashMap;

use super::allocated;
use super::limits::{Limit, Limits};
use super::resolve::Resolved;
use crate::id::JobIndex;

/// The limits of a graph's jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobLimits {
    distinct: Box<[Arc<Limits>]>,
    /// For each job, the index of its limits plus one; zero if it has none.
    places: Box<[u32]>,
    /// For each job, the number of its first limits that come from its queue and handler. Empty if
    /// there are none, or if the graph was decoded from a record, which does not contain the
    /// numbers.
    given: Box<[u8]>,
}

impl JobLimits {
    /// The limits of each job, in the order of the jobs. `None` if no job has any.
    pub(super) fn new(each: Vec<Option<Resolved>>) -> Option<Box<Self>> {
        let mut known: HashMap<Arc<Limits>, u32> = HashMap::new();
        let mut distinct = Vec::new();
        let mut places = Vec::new();
        if each.iter().all(Option::is_none) {
            return None;
        }
        places.reserve_exact(each.len());
        let number = |resolved: &Option<Resolved>| {
            resolved.as_ref().map_or(0, |resolved| resolved.given as u8)
        };
        let mut given: Vec<u8> = each.iter().map(number).collect();
        if given.iter().all(|given| *given == 0) {
            given = Vec::new();
        }
        for resolved in each {
            places.push(resolved.map_or(0, |Resolved { limits, .. }| {
                *known.entry(Arc::new(limits)).or_insert_with_key(|limits| {
                    distinct.push(Arc::clone(limits));
                    distinct.len() as u32
                })
            }));
        }
        Some(Box::new(Self {
            distinct: distinct.into(),
            places: places.into(),
            given: given.into(),
        }))
    }

    /// The limits that the author gave to a job.
    pub(super) fn own(&self, job: JobIndex) -> &[Limit] {
        let given = self
            .given
            .get(job.index())
            .map_or(0, |given| usize::from(*given));
        self.of(job).map_or(&[], |limits| &limits.each()[given..])
    }

    pub(super) fn of(&self, job: JobIndex) -> Option<&Arc<Limits>> {
        let place = self.places.get(job.index())?.checked_sub(1)?;
        self.distinct.get(place as usize)
    }

    /// The distinct limit keys, each with the indexes of its jobs, ascending.
    pub(super) fn jobs(&self) -> Vec<(&str, Vec<JobIndex>)> {
        let mut all: Vec<(&str, Vec<JobIndex>)> = self
            .distinct
            .iter()
            .map(|limits| (limits.key(), Vec::new()))
            .collect();
        for (at, place) in self
            .places
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
    pub(super) fn read(all: &[(String, Vec<JobIndex>)], jobs: usize) -> Option<Box<Self>> {
        let mut distinct = Vec::with_capacity(all.len());
        let mut places = vec![0; jobs];
        for (key, jobs) in all {
            distinct.push(Arc::new(Limits::read(key)?));
            for job in jobs {
                *places.get_mut(job.index())? = distinct.len() as u32;
            }
        }
        Some(Box::new(Self {
            distinct: distinct.into(),
            places: places.into(),
            given: Box::default(),
        }))
    }

    /// Bytes in memory.
    pub(super) fn allocated(&self) -> usize {
        allocated(size_of::<Self>())
            + allocated(size_of_val(&*self.distinct))
            + self
                .distinct
                .iter()
                .map(|limits| limits.allocated())
                .sum::<usize>()
            + allocated(size_of_val(&*self.places))
            + allocated(self.given.len())
    }
}
