//! Lists: pages of workflows by creation, with filters, and numbers of them. A page is two round trips, however many there are.

use std::collections::BTreeMap;

use tracing::warn;

use super::error::EngineError;
use super::queues::Paused;
use super::{Engine, PAUSED};
use crate::id::{IdPrefix, Partition, WorkflowId};
use crate::record::codec::decode;
use crate::record::rows::{ReadyEntry, Section, queue_rows};
use crate::state::{Label, Meta, Status};
use crate::store::{Head, Order, Register, Span, StoreError};
use crate::time::Timestamp;

/// Reads of index rows for one page, when a filter that no index serves passes over many.
const ROUNDS: usize = 20;
/// Names that are counted with one call of the store.
const COUNTED: usize = 64;
/// Workflows that are looked at with one call of the store.
const WALKED: usize = 1_000;
const STATUSES: usize = Status::ALL.len();

/// Which workflows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Of one of these; of any when there are none.
    pub statuses: Vec<Status>,
    /// Of this name.
    pub name: Option<String>,
    /// With this tag.
    pub tag: Option<String>,
    /// Created then or later.
    pub created_from: Option<Timestamp>,
    /// Created before then.
    pub created_to: Option<Timestamp>,
    /// With an id that begins so.
    pub id_prefix: Option<IdPrefix>,
}

/// A question for a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Which workflows.
    pub filter: Filter,
    /// In which order of creation.
    pub order: Order,
    /// How many at most.
    pub limit: usize,
    /// Where the page before ended.
    pub after: Option<Cursor>,
}

/// Where a page ended: workflows that come later never shift what follows.
pub type Cursor = WorkflowId;

/// One page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The workflows.
    pub items: Vec<Listed>,
    /// Where the next page begins; None when there is none.
    pub next: Option<Cursor>,
}

/// What a list says of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub workflow: WorkflowId,
    /// Name and tags.
    pub label: Label,
    /// Its state as a whole.
    pub meta: Meta,
}

/// What a queue is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueState {
    /// Its name.
    pub name: String,
    /// Whether it hands out jobs.
    pub paused: Paused,
    /// Jobs that are ready.
    pub ready: u64,
    /// Since when the one is ready that has waited longest among the most urgent of each partition.
    pub oldest: Option<Timestamp>,
    /// Workers of this server that wait for work right now.
    pub waiting_workers: usize,
}

impl Filter {
    /// The sections that together hold what is wanted; a name beside a tag must be looked at row by row.
    fn sections(&self) -> Vec<Section<'_>> {
        let statuses = self.wanted_statuses().into_iter();
        match (&self.tag, &self.name) {
            (Some(tag), _) => statuses.map(|status| Section::Tag(tag, status)).collect(),
            (None, Some(name)) => statuses.map(|status| Section::Name(name, status)).collect(),
            (None, None) if self.statuses.is_empty() => vec![Section::All],
            (None, None) => statuses.map(Section::Status).collect(),
        }
    }

    /// Each status that is wanted, once.
    fn wanted_statuses(&self) -> Vec<Status> {
        let wanted = |status: &Status| self.statuses.is_empty() || self.statuses.contains(status);
        Status::ALL.into_iter().filter(wanted).collect()
    }

    fn spans(&self, order: Order, after: Option<Cursor>) -> Vec<Span> {
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
        self.sections().into_iter().map(|section| Span { prefix: section.prefix(), from, to }).collect()
    }

    /// The spans of those of one status.
    fn only(&self, status: Status) -> Vec<Span> {
        Self { statuses: vec![status], ..self.clone() }.spans(Order::OldestFirst, None)
    }

    /// Whether the index leaves something to look at.
    fn is_loose(&self) -> bool {
        self.tag.is_some() && self.name.is_some()
    }

    fn admits(&self, label: &Label) -> bool {
        self.name.as_ref().is_none_or(|name| *name == label.name)
    }
}

impl Engine {
    /// One page of workflows.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list(&self, query: &Query) -> Result<Page, EngineError> {
        let limit = query.limit.max(1);
        let mut page = Page { items: Vec::with_capacity(limit), next: query.after };
        for _ in 0..ROUNDS {
            let wanted = limit - page.items.len();
            let (ids, more) = self.ids(query, page.next, wanted).await?;
            page.next = ids.last().copied().filter(|_| more);
            let heads = self.store().heads(&ids).await?;
            for (id, head) in ids.into_iter().zip(heads) {
                // It may have been removed between the two reads.
                let Some(head) = head else { continue };
                match listed(id, &head) {
                    Ok(listed) if query.filter.admits(&listed.label) => page.items.push(listed),
                    Ok(_) => {}
                    // One that is broken must not hide the others.
                    Err(error) => warn!(workflow = %id, %error, "a workflow is left out of a list"),
                }
            }
            if page.next.is_none() || page.items.len() >= limit || !query.filter.is_loose() {
                break;
            }
        }
        Ok(page)
    }

    /// The next `limit` ids in order, and whether there are more.
    async fn ids(
        &self,
        query: &Query,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<WorkflowId>, bool), StoreError> {
        let partitions = self.store().partitions();
        let spans = query.filter.spans(query.order, after);
        let mut questions: Vec<(Partition, Span)> = Vec::with_capacity(spans.len() * usize::from(partitions));
        for span in spans {
            questions.extend((0..partitions).map(|number| (Partition(number), span.clone())));
        }
        // One more than wanted tells whether there is a next page.
        let all = limit + 1;
        let share = share(all, partitions);
        let mut found = self.store().page(&questions, query.order, share).await?;
        let (ids, _) = merged(&found, query.order, limit + 1);
        // When the last row of a cut answer is in the page, rows after it may belong there too.
        let cut = |rows: &Vec<WorkflowId>| rows.len() == share && rows.last().is_some_and(|last| ids.contains(last));
        let again: Vec<usize> = (0..found.len()).filter(|&at| share < all && cut(&found[at])).collect();
        if !again.is_empty() {
            let questions: Vec<(Partition, Span)> = again.iter().map(|&at| questions[at].clone()).collect();
            for (at, rows) in again.into_iter().zip(self.store().page(&questions, query.order, all).await?) {
                found[at] = rows;
            }
        }
        Ok(merged(&found, query.order, limit))
    }

    /// How many workflows there are of each status, as far as the filter admits it.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn count(&self, filter: &Filter) -> Result<Vec<(Status, u64)>, EngineError> {
        let statuses = filter.wanted_statuses();
        if filter.is_loose() {
            let number = |counts: &[u64; STATUSES], status: Status| (status, counts[place(status)]);
            let counts = self.walk(filter).await?.into_values().next().unwrap_or_default();
            return Ok(statuses.into_iter().map(|status| number(&counts, status)).collect());
        }
        let spans: Vec<Span> = statuses.iter().flat_map(|&status| filter.only(status)).collect();
        Ok(statuses.into_iter().zip(self.store().count(&spans).await?).collect())
    }

    /// The same for each name of which there are any.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn count_by_name(&self, filter: &Filter) -> Result<Vec<(String, Vec<(Status, u64)>)>, EngineError> {
        let statuses = filter.wanted_statuses();
        let mut named = Vec::new();
        if filter.tag.is_some() {
            for (name, counts) in self.walk(filter).await? {
                named.push((name, statuses.iter().map(|&status| (status, counts[place(status)])).collect()));
            }
            return Ok(named);
        }
        let mut names = self.names().await?;
        names.retain(|name| filter.name.as_ref().is_none_or(|wanted| wanted == name));
        for some in names.chunks(COUNTED) {
            let one = |name: &String| Filter { name: Some(name.clone()), ..filter.clone() };
            let filters: Vec<Filter> = some.iter().map(one).collect();
            let each = filters.iter().flat_map(|filter| statuses.iter().flat_map(|&status| filter.only(status)));
            let numbers = self.store().count(&each.collect::<Vec<_>>()).await?;
            for (name, numbers) in some.iter().zip(numbers.chunks(statuses.len())) {
                if numbers.iter().any(|&number| number > 0) {
                    named.push((name.clone(), statuses.iter().copied().zip(numbers.iter().copied()).collect()));
                }
            }
        }
        Ok(named)
    }

    /// Counts by name and status what no index counts, by looking at each.
    async fn walk(&self, filter: &Filter) -> Result<BTreeMap<String, [u64; STATUSES]>, EngineError> {
        let mut counts: BTreeMap<String, [u64; STATUSES]> = BTreeMap::new();
        let mut query = Query { filter: filter.clone(), limit: WALKED, ..Query::default() };
        loop {
            let page = self.list(&query).await?;
            for Listed { label, meta, .. } in page.items {
                counts.entry(label.name).or_default()[place(meta.status)] += 1;
            }
            if page.next.is_none() {
                return Ok(counts);
            }
            query.after = page.next;
        }
    }

    /// The names of all kinds of workflows that were ever created.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn names(&self) -> Result<Vec<String>, EngineError> {
        let mut names: Vec<String> =
            self.store().register(Register::Names).await?.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// All queues that a job ever named.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn queue_states(&self) -> Result<Vec<QueueState>, EngineError> {
        let mut queues = self.store().register(Register::Queues).await?;
        queues.sort_unstable();
        let prefixes: Vec<_> = queues.iter().map(|(name, _)| queue_rows(name)).collect();
        let depths = self.store().ready_depth(&prefixes).await?;
        let states = queues.into_iter().zip(depths).map(|((name, value), (ready, firsts))| {
            let oldest = firsts.iter().filter_map(|row| Some(ReadyEntry::read(row)?.since)).min();
            let paused = if value == PAUSED { Paused::Yes } else { Paused::No };
            let waiting_workers = self.queues().waiting_workers(&name);
            QueueState { name, paused, ready, oldest, waiting_workers }
        });
        Ok(states.collect())
    }

    /// Whether a job ever named this queue.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn has_queue(&self, name: &str) -> Result<bool, EngineError> {
        Ok(self.store().register(Register::Queues).await?.iter().any(|(known, _)| known == name))
    }

    /// Pauses a queue or lets it go on: it hands out no jobs, on all servers of the store.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn set_queue_paused(&self, name: &str, paused: Paused) -> Result<(), EngineError> {
        let value = if paused == Paused::Yes { PAUSED } else { "" };
        self.store().enter(Register::Queues, name, Some(value)).await?;
        self.queues().set_paused(name, paused);
        Ok(())
    }
}

fn place(status: Status) -> usize {
    status as usize
}

fn listed(workflow: WorkflowId, head: &Head) -> Result<Listed, StoreError> {
    let label: Label = decode(&head.label, || format!("the label of workflow {workflow}"))?;
    let meta: Meta = decode(&head.meta, || format!("the state of workflow {workflow}"))?;
    Ok(Listed { workflow, label, meta })
}

/// The first `limit` ids of lists that are in order, and whether there are more.
fn merged(found: &[Vec<WorkflowId>], order: Order, limit: usize) -> (Vec<WorkflowId>, bool) {
    let mut ids = found.concat();
    match order {
        Order::NewestFirst => ids.sort_unstable_by(|a, b| b.cmp(a)),
        Order::OldestFirst => ids.sort_unstable(),
    }
    // A workflow that changes its status between two reads may be in two lists.
    ids.dedup();
    let more = ids.len() > limit;
    ids.truncate(limit);
    (ids, more)
}

/// Rows to read of each partition so that `wanted` in all are almost never too few: the mean and seven standard deviations of a
/// Poisson distribution, which for 100 of 16 partitions fails once in a million pages.
fn share(wanted: usize, partitions: u16) -> usize {
    let mean = wanted as f64 / f64::from(partitions.max(1));
    ((mean + 7.0 * mean.sqrt()).ceil() as usize + 1).min(wanted)
}
