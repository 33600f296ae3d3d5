//! Filter and order of a list of workflows.

use std::cmp::Ordering;

use crate::codec::Section;
use crate::model::{IdPrefix, Label, Status, Timestamp, WorkflowId};
use crate::store::{Order, RowRange};

/// The filter of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// One of these statuses. Empty means any status.
    pub statuses: Vec<Status>,
    /// This name.
    pub name: Option<String>,
    /// This tag.
    pub tag: Option<String>,
    /// Creation at this time or later.
    pub created_from: Option<Timestamp>,
    /// Creation before this time.
    pub created_to: Option<Timestamp>,
    /// An id with this prefix.
    pub id_prefix: Option<IdPrefix>,
    /// One of these ids. `None` means any id.
    pub ids: Option<Vec<WorkflowId>>,
}

/// A filter by the failed jobs of workflows: one job must match all fields that are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailureFilter {
    /// This kind of error.
    pub kind: Option<String>,
    /// This handler.
    pub handler: Option<String>,
}

/// A request for a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// The filter of the list.
    pub filter: Filter,
    /// A failed job. No index has these, so a page reads a bounded number of workflows, and may have
    /// fewer items than its limit.
    pub failure: Option<FailureFilter>,
    /// The order of creation.
    pub order: Order,
    /// The maximum number of workflows.
    pub limit: usize,
    /// The end of the previous page.
    pub after: Option<Cursor>,
}

/// The end of a page. Workflows that are created later do not shift the next page.
pub type Cursor = WorkflowId;

/// The first id, inclusive, and the last, exclusive. `None` if there is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdBounds {
    from: Option<WorkflowId>,
    to: Option<WorkflowId>,
}

impl Filter {
    /// The sections of the index that contain the wanted workflows. A filter with a name and a tag
    /// also needs the label of each workflow.
    pub(super) fn sections(&self) -> Vec<Section<'_>> {
        let statuses = self.wanted_statuses().into_iter();
        match (&self.tag, &self.name) {
            (Some(tag), _) => statuses.map(|status| Section::Tag(tag, status)).collect(),
            (None, Some(name)) => statuses.map(|status| Section::Name(name, status)).collect(),
            (None, None) if self.statuses.is_empty() => vec![Section::All],
            (None, None) => statuses.map(Section::Status).collect(),
        }
    }

    /// The wanted statuses, without duplicates.
    pub(super) fn wanted_statuses(&self) -> Vec<Status> {
        let wanted = |status: &Status| self.statuses.is_empty() || self.statuses.contains(status);
        Status::ALL.into_iter().filter(wanted).collect()
    }

    pub(super) fn ranges(&self, order: Order, after: Option<Cursor>) -> Vec<RowRange> {
        let bounds = self.bounds(order, after);
        let sections = self.sections().into_iter();
        sections.map(|section| bounds.range(section)).collect()
    }

    /// The ids that the times, the prefix and the cursor allow.
    pub(super) fn bounds(&self, order: Order, after: Option<Cursor>) -> IdBounds {
        let mut bounds = IdBounds {
            from: self.created_from.map(WorkflowId::first_at),
            to: self.created_to.map(WorkflowId::first_at),
        };
        if let Some(prefix) = self.id_prefix {
            bounds = bounds.and(prefix.first(), prefix.end());
        }
        match (order, after) {
            (Order::NewestFirst, Some(after)) => bounds.before(after),
            (Order::OldestFirst, Some(after)) => bounds.since(after.next()),
            (_, None) => bounds,
        }
    }

    /// The wanted ids in order. `None` if the index finds the workflows.
    pub(super) fn listed_ids(
        &self,
        order: Order,
        after: Option<Cursor>,
    ) -> Option<Vec<WorkflowId>> {
        let bounds = self.bounds(order, after);
        let mut ids = self.ids.clone()?;
        ids.retain(|id| bounds.contain(*id));
        sort(&mut ids, order);
        ids.dedup();
        Some(ids)
    }

    /// The row ranges of the index for one status.
    pub(super) fn ranges_for(&self, status: Status) -> Vec<RowRange> {
        Self {
            statuses: vec![status],
            ..self.clone()
        }
        .ranges(Order::OldestFirst, None)
    }

    /// Whether the labels must be read, because the index does not cover the filter.
    pub(super) fn needs_labels(&self) -> bool {
        self.ids.is_some() || (self.tag.is_some() && self.name.is_some())
    }

    pub(super) fn admits(&self, label: &Label, status: Status) -> bool {
        self.name.as_ref().is_none_or(|name| *name == label.name)
            && self.tag.as_ref().is_none_or(|tag| label.tags.contains(tag))
            && (self.ids.is_none() || self.wanted_statuses().contains(&status))
    }
}

impl IdBounds {
    /// The rows of a section of the index within these bounds.
    pub(super) fn range(self, section: Section<'_>) -> RowRange {
        RowRange {
            prefix: section.prefix(),
            from: self.from,
            to: self.to,
        }
    }

    /// Bounds that are also within `from..to`.
    pub(super) fn and(self, from: WorkflowId, to: WorkflowId) -> Self {
        self.since(from).before(to)
    }

    fn since(mut self, from: WorkflowId) -> Self {
        self.from = Some(self.from.map_or(from, |own| own.max(from)));
        self
    }

    fn before(mut self, to: WorkflowId) -> Self {
        self.to = Some(self.to.map_or(to, |own| own.min(to)));
        self
    }

    pub(super) fn contain(self, id: WorkflowId) -> bool {
        self.from.is_none_or(|from| id >= from) && self.to.is_none_or(|to| id < to)
    }
}

/// Compares ids in the order of a list.
pub(super) fn compare(order: Order, one: WorkflowId, other: WorkflowId) -> Ordering {
    match order {
        Order::NewestFirst => other.cmp(&one),
        Order::OldestFirst => one.cmp(&other),
    }
}

/// Sorts ids into the order of a list.
pub(super) fn sort(ids: &mut [WorkflowId], order: Order) {
    ids.sort_unstable_by(|one, other| compare(order, *one, *other));
}
