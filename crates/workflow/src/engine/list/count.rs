//! How many workflows there are, by status and name.

use std::collections::BTreeMap;

use super::Listed;
use super::query::{Filter, Query};
use crate::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::partial::{Missing, Partial};
use crate::state::Status;
use crate::store::query::{Register, Span};

/// How many names are counted with one call of the store.
const COUNTED: usize = 64;
/// How many names are read with one call.
const NAMES: usize = 4_096;
/// How many workflows are read with one call of the store.
const WALKED: usize = 1_000;
const STATUSES: usize = Status::ALL.len();

/// Names, each with its numbers by status.
type NumbersByName = Vec<(String, Vec<(Status, u64)>)>;

impl Engine {
    /// The number of workflows of each status that match the filter.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn count(&self, filter: &Filter) -> Result<Partial<Vec<(Status, u64)>>, EngineError> {
        let (statuses, mut missing) = (filter.wanted_statuses(), Missing::default());
        if filter.needs_labels() {
            let number = |counts: &[u64; STATUSES], status: Status| (status, counts[place(status)]);
            let counts = self.walk(filter, &mut missing).await?.into_values().next().unwrap_or_default();
            return Ok(Partial {
                found: statuses.into_iter().map(|status| number(&counts, status)).collect(),
                missing,
            });
        }
        let spans: Vec<Span> = statuses.iter().flat_map(|&status| filter.only(status)).collect();
        let counts = self.counted(&spans, &mut missing).await?;
        Ok(Partial { found: statuses.into_iter().zip(counts).collect(), missing })
    }

    /// The same for each name that has workflows.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn count_by_name(&self, filter: &Filter) -> Result<Partial<NumbersByName>, EngineError> {
        let (statuses, mut missing) = (filter.wanted_statuses(), Missing::default());
        let mut named = Vec::new();
        if filter.tag.is_some() {
            for (name, counts) in self.walk(filter, &mut missing).await? {
                named.push((name, statuses.iter().map(|&status| (status, counts[place(status)])).collect()));
            }
            return Ok(Partial { found: named, missing });
        }
        if let Some(name) = &filter.name {
            self.count_names(std::slice::from_ref(name), filter, (&mut named, &mut missing)).await?;
            return Ok(Partial { found: named, missing });
        }
        let mut after = None::<String>;
        loop {
            let page = self.store().register_page(Register::Names, after.as_deref(), NAMES).await?;
            let names: Vec<String> = page.into_iter().map(|(name, _)| name).collect();
            for some in names.chunks(COUNTED) {
                self.count_names(some, filter, (&mut named, &mut missing)).await?;
            }
            if names.len() < NAMES {
                return Ok(Partial { found: named, missing });
            }
            after = names.into_iter().last();
        }
    }

    /// Counts those of these names that have workflows.
    async fn count_names(
        &self,
        names: &[String],
        filter: &Filter,
        (named, missing): (&mut NumbersByName, &mut Missing),
    ) -> Result<(), EngineError> {
        let statuses = filter.wanted_statuses();
        let one = |name: &String| Filter { name: Some(name.clone()), ..filter.clone() };
        let filters: Vec<Filter> = names.iter().map(one).collect();
        let each = filters.iter().flat_map(|filter| statuses.iter().flat_map(|&status| filter.only(status)));
        let numbers = self.counted(&each.collect::<Vec<_>>(), missing).await?;
        for (name, numbers) in names.iter().zip(numbers.chunks(statuses.len())) {
            if numbers.iter().any(|&number| number > 0) {
                named.push((name.clone(), statuses.iter().copied().zip(numbers.iter().copied()).collect()));
            }
        }
        Ok(())
    }

    /// Counts by name and status by reading each workflow, for filters without an index.
    async fn walk(
        &self,
        filter: &Filter,
        missing: &mut Missing,
    ) -> Result<BTreeMap<String, [u64; STATUSES]>, EngineError> {
        let mut counts: BTreeMap<String, [u64; STATUSES]> = BTreeMap::new();
        let mut query = Query { filter: filter.clone(), limit: WALKED, ..Query::default() };
        loop {
            let page = self.list(&query).await?;
            missing.add(page.missing);
            for Listed { label, meta, .. } in page.items {
                counts.entry(label.name).or_default()[place(meta.status)] += 1;
            }
            if page.next.is_none() {
                return Ok(counts);
            }
            query.after = page.next;
        }
    }
}

fn place(status: Status) -> usize {
    status as usize
}
