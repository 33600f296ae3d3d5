//! Filter and order of a list of workflows.

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

impl Filter {
    /// The sections of the index that contain the wanted workflows. A filter with a name and a tag
    /// also needs the label of each workflow.
    fn sections(&self) -> Vec<Section<'_>> {
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
        let mut from = self.created_from.map(WorkflowId::first_at);
        let mut to = self.created_to.map(WorkflowId::first_at);
        if let Some(prefix) = self.id_prefix {
            from = Some(from.map_or(prefix.first(), |from| from.max(prefix.first())));
            to = Some(to.map_or(prefix.end(), |to| to.min(prefix.end())));
        }
        match (order, after) {
            (Order::NewestFirst, Some(after)) => to = Some(to.map_or(after, |to| to.min(after))),
            (Order::OldestFirst, Some(after)) => {
                let next = after.next();
                from = Some(from.map_or(next, |from| from.max(next)));
            }
            (_, None) => {}
        }
        self.sections()
            .into_iter()
            .map(|section| RowRange {
                prefix: section.prefix(),
                from,
                to,
            })
            .collect()
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
        self.tag.is_some() && self.name.is_some()
    }

    pub(super) fn admits(&self, label: &Label) -> bool {
        self.name.as_ref().is_none_or(|name| *name == label.name)
    }
}
