//! Counts of workflows by status and name.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::ListedWorkflow;
use super::partial::{MissingPartitions, PartialResult};
use super::query::{Filter, Query};
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::model::Status;
use crate::store::{Register, RowRange};

/// Names that one call of the store counts.
const NAMES_PER_CALL: usize = 64;
/// Workflows that one call of the store reads, and the maximum for one count.
const WALK_PAGE: usize = 1_000;
const MAX_WALKED: usize = 100_000;
const STATUS_COUNT: usize = Status::ALL.len();

/// Names, each with its counts by status.
type NumbersByName = Vec<(String, Vec<(Status, u64)>)>;

/// A page of counts of workflows by name and status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CountPage {
    /// The counts by name.
    pub names: NumbersByName,
    /// The name after which the next page begins. `None` if this is the last page.
    pub next: Option<String>,
}

impl Engine {
    /// The number of workflows of each status that match the filter.
    ///
    /// # Errors
    /// The store cannot be read, or too many workflows have the tag of a filter with a name and a
    /// tag.
    pub async fn count(
        &self,
        filter: &Filter,
    ) -> Result<PartialResult<Vec<(Status, u64)>>, EngineError> {
        let statuses = filter.wanted_statuses();
        let mut missing = MissingPartitions::default();
        if filter.needs_labels() {
            let by_name = self.walk(filter, &mut missing).await?;
            let number = |status: Status| -> u64 {
                by_name
                    .values()
                    .map(|counts| counts[status_index(status)])
                    .sum()
            };
            let numbers = statuses.into_iter().map(|status| (status, number(status)));
            return Ok(PartialResult {
                found: numbers.collect(),
                missing,
            });
        }
        let spans: Vec<RowRange> = statuses
            .iter()
            .flat_map(|&status| filter.ranges_for(status))
            .collect();
        let counts = self.sum_counts(&spans, &mut missing).await?;
        Ok(PartialResult {
            found: statuses.into_iter().zip(counts).collect(),
            missing,
        })
    }

    /// Counts by status for each name with workflows, among at most `limit` names after `after`. A
    /// page may hold fewer names, because some have no workflows.
    ///
    /// # Errors
    /// The store cannot be read, or too many workflows have the tag of the filter.
    pub async fn count_by_name(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<PartialResult<CountPage>, EngineError> {
        let mut missing = MissingPartitions::default();
        if filter.tag.is_some() {
            return Ok(PartialResult {
                found: self.walk_page(filter, after, limit, &mut missing).await?,
                missing,
            });
        }
        let (names, more) = match &filter.name {
            Some(name) => (vec![name.clone()], false),
            None => self.names_page(after, limit).await?,
        };
        let mut counts_by_name = Vec::new();
        for batch in names.chunks(NAMES_PER_CALL) {
            self.count_names(batch, filter, &mut counts_by_name, &mut missing)
                .await?;
        }
        let next = names.into_iter().last().filter(|_| more);
        Ok(PartialResult {
            found: CountPage {
                names: counts_by_name,
                next,
            },
            missing,
        })
    }

    /// A page of counts for a filter with a tag, which has no index by name.
    async fn walk_page(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
        missing: &mut MissingPartitions,
    ) -> Result<CountPage, EngineError> {
        let statuses = filter.wanted_statuses();
        let counts = self.walk(filter, missing).await?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut names = NumbersByName::new();
        for (name, counts) in counts.range::<str, _>((from, Bound::Unbounded)).take(limit) {
            let number = |&status: &Status| (status, counts[status_index(status)]);
            names.push((name.clone(), statuses.iter().map(number).collect()));
        }
        let last = names.last().map(|(name, _)| name.clone());
        let next = last.filter(|last| counts.last_key_value().is_some_and(|(name, _)| name > last));
        Ok(CountPage { names, next })
    }

    /// At most `limit` names after `after`, and whether there are more.
    async fn names_page(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<String>, bool), EngineError> {
        let mut page = self
            .store()
            .register_page(Register::Names, after, limit + 1)
            .await?;
        let more = page.len() > limit;
        page.truncate(limit);
        Ok((page.into_iter().map(|(name, _)| name).collect(), more))
    }

    /// Counts the workflows of these names; names without workflows are left out.
    async fn count_names(
        &self,
        names: &[String],
        filter: &Filter,
        counts_by_name: &mut NumbersByName,
        missing: &mut MissingPartitions,
    ) -> Result<(), EngineError> {
        let statuses = filter.wanted_statuses();
        let name_filter = |name: &String| Filter {
            name: Some(name.clone()),
            ..filter.clone()
        };
        let filters: Vec<Filter> = names.iter().map(name_filter).collect();
        let ranges = filters.iter().flat_map(|filter| {
            statuses
                .iter()
                .flat_map(|&status| filter.ranges_for(status))
        });
        let numbers = self
            .sum_counts(&ranges.collect::<Vec<_>>(), missing)
            .await?;
        for (name, numbers) in names.iter().zip(numbers.chunks(statuses.len())) {
            if numbers.iter().any(|&number| number > 0) {
                counts_by_name.push((
                    name.clone(),
                    statuses
                        .iter()
                        .copied()
                        .zip(numbers.iter().copied())
                        .collect(),
                ));
            }
        }
        Ok(())
    }

    /// Counts by name and status by reading each workflow, for filters without an index.
    async fn walk(
        &self,
        filter: &Filter,
        missing: &mut MissingPartitions,
    ) -> Result<BTreeMap<String, [u64; STATUS_COUNT]>, EngineError> {
        let mut counts: BTreeMap<String, [u64; STATUS_COUNT]> = BTreeMap::new();
        let mut query = Query {
            filter: filter.clone(),
            limit: WALK_PAGE,
            ..Query::default()
        };
        for _ in 0..MAX_WALKED / WALK_PAGE {
            let page = self.list(&query).await?;
            missing.add(page.missing);
            for ListedWorkflow { label, meta, .. } in page.items {
                counts.entry(label.name).or_default()[status_index(meta.status)] += 1;
            }
            if page.next.is_none() {
                return Ok(counts);
            }
            query.after = page.next;
        }
        Err(EngineError::TooManyToCount { most: MAX_WALKED })
    }
}

fn status_index(status: Status) -> usize {
    status as usize
}
