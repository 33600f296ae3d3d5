//! Which workflows a list contains, and in which order.

use crate::codec::rows::Section;
use crate::id::{IdPrefix, WorkflowId};
use crate::state::{Label, Status};
use crate::store::query::{Order, RowRange};
use crate::time::Timestamp;

/// Which workflows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// With one of these statuses. Empty: with any.
    pub statuses: Vec<Status>,
    /// With this name.
    pub name: Option<String>,
    /// With this tag.
    pub tag: Option<String>,
    /// Created at this time or later.
    pub created_from: Option<Timestamp>,
    /// Created before this time.
    pub created_to: Option<Timestamp>,
    /// With an id that begins with this.
    pub id_prefix: Option<IdPrefix>,
}

/// Asks for a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Which workflows.
    pub filter: Filter,
    /// In which order of creation.
    pub order: Order,
    /// The highest number of workflows.
    pub limit: usize,
    /// Where the previous page ended.
    pub after: Option<Cursor>,
}

/// Where a page ended. Workflows that are created later do not shift the next page.
pub type Cursor = WorkflowId;

impl Filter {
    /// The sections of the index that together contain the wanted workflows. For a name together with a tag, each workflow must be read.
    fn sections(&self) -> Vec<Section<'_>> {
        let statuses = self.wanted_statuses().into_iter();
        match (&self.tag, &self.name) {
            (Some(tag), _) => statuses.map(|status| Section::Tag(tag, status)).collect(),
            (None, Some(name)) => statuses.map(|status| Section::Name(name, status)).collect(),
            (None, None) if self.statuses.is_empty() => vec![Section::All],
            (None, None) => statuses.map(Section::Status).collect(),
        }
    }

    /// The wanted statuses, each once.
    pub(super) fn wanted_statuses(&self) -> Vec<Status> {
        let wanted = |status: &Status| self.statuses.is_empty() || self.statuses.contains(status);
        Status::ALL.into_iter().filter(wanted).collect()
    }

    pub(super) fn spans(&self, order: Order, after: Option<Cursor>) -> Vec<RowRange> {
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

    /// The spans of the index for one status.
    pub(super) fn only(&self, status: Status) -> Vec<RowRange> {
        Self {
            statuses: vec![status],
            ..self.clone()
        }
        .spans(Order::OldestFirst, None)
    }

    /// Whether the index leaves something to look at.
    pub(super) fn needs_labels(&self) -> bool {
        self.tag.is_some() && self.name.is_some()
    }

    pub(super) fn admits(&self, label: &Label) -> bool {
        self.name.as_ref().is_none_or(|name| *name == label.name)
    }
}
