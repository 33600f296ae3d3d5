//! A text that is searched for, and what the index has of it.

use super::position::NameHash;
use crate::codec::Section;
use crate::engine::Engine;
use crate::engine::context::error::EngineError;
use crate::engine::list::ListedWorkflow;
use crate::engine::list::highlights::JobFailure;
use crate::engine::list::match_rank::MatchRank;
use crate::engine::list::query::{Cursor, Filter, IdBounds};
use crate::model::id::fnv1a;
use crate::model::{IdPrefix, Label, Status, WorkflowId};
use crate::store::{Order, Register, RowRange};

/// Names that are compared with a text, and those of one read.
const MAX_NAMES: usize = 10_000;
const PAGE_NAMES: usize = 4_096;
/// Names whose workflows the index finds for one text. Workflows of other names are found by reading
/// them.
pub(super) const MAX_FOUND_NAMES: usize = 32;
/// Reads of the index that these names may take: one for each of them, each status and each
/// partition.
const MAX_RANGE_READS: usize = 8_192;

/// A text, and the parts of the index that match it.
#[derive(Debug, Default)]
pub(super) struct SearchIndex {
    text: String,
    lowercase: String,
    /// Names that contain the text, the best first.
    names: Vec<String>,
    use_of_names: UseOfNames,
    /// Whether names and tags are looked up in the index.
    uses_labels: bool,
    ids: Vec<IdRange>,
    /// The workflow with the text as its key.
    pub(super) by_key: Option<WorkflowId>,
}

/// Ids from the first, inclusive, to the second, exclusive.
#[derive(Debug, Clone, Copy)]
struct IdRange {
    from: WorkflowId,
    to: WorkflowId,
}

/// Whether the workflows of the found names are results.
#[derive(Debug, Default, PartialEq, Eq)]
enum UseOfNames {
    #[default]
    Found,
    LeftOut,
}

impl SearchIndex {
    pub(super) fn into_names(self) -> Vec<String> {
        self.names
    }

    /// The names, for the cursor of the next page.
    pub(super) fn name_hashes(&self) -> Vec<NameHash> {
        self.names.iter().map(|name| name_hash(name)).collect()
    }

    /// Leaves out workflows of the found names, which are counted without reading them.
    pub(super) fn leave_out_names(&mut self) {
        self.use_of_names = UseOfNames::LeftOut;
    }

    /// The index rows of the found names, for each name by status.
    pub(super) fn name_ranges(&self, statuses: &[Status], bounds: IdBounds) -> Vec<RowRange> {
        let names = self.names.iter().filter(|_| self.uses_labels);
        let each =
            names.flat_map(|name| statuses.iter().map(|&status| Section::Name(name, status)));
        each.map(|section| bounds.range(section)).collect()
    }

    /// The index rows of all matches.
    pub(super) fn ranges(
        &self,
        filter: &Filter,
        order: Order,
        after: Option<Cursor>,
    ) -> Vec<RowRange> {
        let bounds = filter.bounds(order, after);
        let statuses = filter.wanted_statuses();
        let mut ranges = Vec::new();
        if self.use_of_names == UseOfNames::Found {
            ranges = self.name_ranges(&statuses, bounds);
        }
        if self.uses_labels {
            let tag = |&status: &Status| bounds.range(Section::Tag(&self.text, status));
            ranges.extend(statuses.iter().map(tag));
        }
        for ids in &self.ids {
            let bounds = bounds.and(ids.from, ids.to);
            let sections = filter.sections().into_iter();
            ranges.extend(sections.map(|section| bounds.range(section)));
        }
        ranges
    }

    /// Whether the index finds a workflow.
    pub(super) fn finds(&self, item: &ListedWorkflow) -> bool {
        let is_named = self.has_name(&item.label);
        if is_named && self.use_of_names == UseOfNames::LeftOut {
            return false;
        }
        let has_tag = self.uses_labels && item.label.tags.contains(&self.text);
        let id = item.workflow;
        is_named || has_tag || self.ids.iter().any(|ids| (ids.from..ids.to).contains(&id))
    }

    /// Whether a workflow that was read is found or counted elsewhere.
    pub(super) fn skips(&self, item: &ListedWorkflow) -> bool {
        self.has_name(&item.label) || self.finds(item)
    }

    fn has_name(&self, label: &Label) -> bool {
        self.uses_labels && self.names.contains(&label.name)
    }

    /// Whether the name or a tag contains the text.
    pub(super) fn is_in_label(&self, label: &Label) -> bool {
        self.is_in(&label.name) || label.tags.iter().any(|tag| self.is_in(tag))
    }

    /// Whether a failed job or its error contains the text.
    pub(super) fn is_in_failure(&self, failure: &JobFailure) -> bool {
        let error = failure.error.as_ref();
        self.is_in(&failure.job)
            || error.is_some_and(|error| self.is_in(&error.kind) || self.is_in(&error.message))
    }

    fn is_in(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.lowercase)
    }
}

/// The hash of a name in a cursor.
fn name_hash(name: &str) -> NameHash {
    let hash = fnv1a(name.as_bytes());
    (hash ^ (hash >> 32)) as NameHash
}

impl Engine {
    /// At most 32 tags of workflows that were listed or created here and that contain a text, in
    /// upper or lower case, the best first.
    #[must_use]
    pub fn tags_with(&self, text: &str) -> Vec<String> {
        let mut found = self.core.seen_tags.ranked(&text.to_lowercase());
        found.sort_unstable();
        found.truncate(MAX_FOUND_NAMES);
        found.into_iter().map(|(_, tag)| tag).collect()
    }

    /// Looks a text up in the registers and the index of keys. A later page of a search has the names
    /// of its first page, so that names that appear meanwhile move no workflow from one part to the
    /// other.
    pub(super) async fn search_index(
        &self,
        filter: &Filter,
        text: &str,
        chosen: Option<&[NameHash]>,
    ) -> Result<SearchIndex, EngineError> {
        let mut index = SearchIndex {
            text: text.to_owned(),
            lowercase: text.to_lowercase(),
            ..SearchIndex::default()
        };
        // Chosen ids are few, so all of them are read.
        if filter.ids.is_some() {
            return Ok(index);
        }
        if filter.name.is_none() && filter.tag.is_none() {
            index.uses_labels = true;
            index.names = self.ranked_names(Register::Names, text).await?;
            match chosen {
                Some(hashes) => index.names.retain(|name| hashes.contains(&name_hash(name))),
                None => index.names.truncate(self.max_found_names(filter)),
            }
        }
        if let Ok(prefix) = text.parse::<IdPrefix>() {
            index.ids.push(IdRange {
                from: prefix.first(),
                to: prefix.end(),
            });
        }
        // The partition of the key may be the one that does not answer. The list says so.
        if let Ok(Some(id)) = self.find_by_key(text).await {
            index.by_key = Some(id);
            index.ids.push(IdRange {
                from: id,
                to: id.next(),
            });
        }
        Ok(index)
    }

    /// At most 32 registered names that contain a text, in upper or lower case, the best first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn names_with(
        &self,
        register: Register,
        text: &str,
    ) -> Result<Vec<String>, EngineError> {
        let mut names = self.ranked_names(register, text).await?;
        names.truncate(MAX_FOUND_NAMES);
        Ok(names)
    }

    fn max_found_names(&self, filter: &Filter) -> usize {
        let reads = filter.wanted_statuses().len() * usize::from(self.store().partitions());
        (MAX_RANGE_READS / reads.max(1)).clamp(1, MAX_FOUND_NAMES)
    }

    /// The registered names that contain a text, the best first.
    async fn ranked_names(
        &self,
        register: Register,
        text: &str,
    ) -> Result<Vec<String>, EngineError> {
        let lowercase = text.to_lowercase();
        let mut found = Vec::new();
        let mut last = None::<String>;
        let mut read = 0;
        while read < MAX_NAMES {
            let limit = PAGE_NAMES.min(MAX_NAMES - read);
            let page = match register {
                Register::Names => self.workflow_names(last.as_deref(), limit).await?,
                Register::Queues => {
                    let queues = self.queue_names(last.as_deref(), limit).await?;
                    queues.into_iter().map(|(name, _)| name).collect()
                }
            };
            read += page.len();
            last = page.last().cloned();
            let is_last = page.len() < limit;
            let ranked = |name: String| Some((MatchRank::for_name(&name, &lowercase)?, name));
            found.extend(page.into_iter().filter_map(ranked));
            if is_last {
                break;
            }
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, name)| name).collect())
    }
}
