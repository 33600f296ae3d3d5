//! Search of everything by a text: workflows, their names and tags, limits, queues, workers and
//! handlers.

use std::collections::BTreeSet;

use serde::Serialize;
use tidegate_workflow::{ListedWorkflow, Query as ListQuery, Register, rank};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::json::{self, Id};
use crate::http::problem::Problem;
use crate::http::query::Query;
use crate::limits::configuration::{FoundLimit, limits_with};
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::workers::shared_status;
use crate::workflows::selection::text_from;

/// Most results of an answer, and of each kind: they fit a short list, and one kind does not hide
/// the others.
const MAX_RESULTS: usize = 20;
const MAX_OF_KIND: usize = 8;

/// Results with the text, the best first.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct SearchResults {
    /// At most 20, and at most eight of a kind.
    #[cfg_attr(test, schema(max_items = 20))]
    items: Vec<FoundItem>,
    /// Whether there are more, or may be.
    more: bool,
}

/// Something that has the text.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = SearchResult))]
struct FoundItem {
    kind: SearchKind,
    /// Its name. Of a limit: its keys and values.
    name: String,
    /// The id of a workflow. Left out of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Id>,
    /// The status of a workflow. Left out of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    /// The path of a limit in the configuration. Left out of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip)]
    rank: u8,
}

/// Kind of a result. Of equally good results, those of the first kinds come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema))]
enum SearchKind {
    Name,
    Workflow,
    Tag,
    Limit,
    Queue,
    Worker,
    Handler,
}

/// Results that are collected.
struct Collector {
    lowercase: String,
    results: SearchResults,
}

impl FoundItem {
    fn new(kind: SearchKind, name: String, rank: u8) -> Self {
        Self {
            kind,
            name,
            id: None,
            status: None,
            path: None,
            rank,
        }
    }
}

impl Collector {
    fn rank(&self, text: &str) -> Option<u8> {
        rank(text, &self.lowercase)
    }

    /// Adds the best of these names that have the text.
    fn add_names(&mut self, kind: SearchKind, names: impl IntoIterator<Item = String>) {
        let names = names.into_iter();
        let found = names.filter_map(|name| Some((self.rank(&name)?, name)));
        let found = found.map(|(rank, name)| FoundItem::new(kind, name, rank));
        let found = found.collect();
        self.add(found);
    }

    /// Adds the best of some results of one kind.
    fn add(&mut self, mut found: Vec<FoundItem>) {
        found.sort_by_key(|result| result.rank);
        self.results.more |= found.len() > MAX_OF_KIND;
        found.truncate(MAX_OF_KIND);
        self.results.items.extend(found);
    }

    /// Adds workflows, their names and their tags.
    async fn add_workflows(
        &mut self,
        request: &RequestContext<'_>,
        text: &str,
    ) -> Result<(), Problem> {
        let query = ListQuery {
            limit: MAX_OF_KIND,
            ..ListQuery::default()
        };
        let engine = request.engine();
        let found = engine.search(&query, text, None).await?;
        let by_key = found.by_key;
        let result = |item: ListedWorkflow| {
            let by_id = self
                .rank(&item.workflow.to_string())
                .filter(|rank| *rank < 2);
            let by_key = (by_key == Some(item.workflow)).then_some(0);
            let ranks = [by_id, by_key, self.rank(&item.label.name)];
            // A workflow that has the text elsewhere comes after all others.
            let rank = ranks.into_iter().flatten().min().unwrap_or(u8::MAX);
            FoundItem {
                id: Some(Id(item.workflow)),
                status: Some(item.meta.status.word()),
                ..FoundItem::new(SearchKind::Workflow, item.label.name, rank)
            }
        };
        let workflows = found.page.items.into_iter().map(result).collect();
        self.results.more |= found.next.is_some();
        self.add(workflows);
        self.add_names(SearchKind::Name, found.names);
        self.add_names(SearchKind::Tag, engine.tags_with(text));
        Ok(())
    }

    fn add_limits(&mut self, request: &RequestContext<'_>) {
        let configuration = request.api.hooks.limits.limiter.configuration();
        let Some(configuration) = configuration.as_deref() else {
            return;
        };
        let found = limits_with(configuration, &self.lowercase, MAX_RESULTS);
        let result = |limit: FoundLimit| {
            let ranks = [&limit.name, &limit.rule].map(|text| self.rank(text));
            let rank = ranks.into_iter().flatten().min().unwrap_or(u8::MAX);
            FoundItem {
                path: Some(limit.rule),
                ..FoundItem::new(SearchKind::Limit, limit.name, rank)
            }
        };
        let found = found.into_iter().map(result).collect();
        self.add(found);
    }

    /// Adds workers, and the handlers that they claim or whose attempts this server has counted.
    async fn add_workers(&mut self, request: &RequestContext<'_>) -> Result<(), Problem> {
        let api = request.api;
        let (registry, engine) = (&api.worker_registry, api.engine());
        let workers = shared_status::workers(registry, engine, api.now()).await?;
        let mut handlers = counted_handlers(request);
        let claimed = workers
            .values()
            .filter_map(|worker| worker.handlers.clone());
        handlers.extend(claimed.flatten());
        self.add_names(SearchKind::Worker, workers.into_keys());
        self.add_names(SearchKind::Handler, handlers);
        Ok(())
    }

    /// Returns the best results.
    fn into_results(mut self) -> SearchResults {
        let SearchResults { items, more } = &mut self.results;
        items.sort_by_key(|item| (item.rank, item.kind));
        *more |= items.len() > MAX_RESULTS;
        items.truncate(MAX_RESULTS);
        self.results
    }
}

/// The handlers whose attempts this server has counted.
fn counted_handlers(request: &RequestContext<'_>) -> BTreeSet<String> {
    let counts = request.api.metrics.attempt_counts();
    let counted = counts.iter().flat_map(|counts| counts.handlers());
    counted.map(|times| times.handler).collect()
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let text = text_from(query.remove("q"), "q")?;
    let text = text.ok_or_else(|| Problem::field("q", "expected a text"))?;
    query.finish()?;
    let mut collector = Collector {
        lowercase: text.to_lowercase(),
        results: SearchResults {
            items: Vec::new(),
            more: false,
        },
    };
    collector.add_workflows(request, &text).await?;
    collector.add_limits(request);
    let queues = request.engine().names_with(Register::Queues, &text).await?;
    collector.add_names(SearchKind::Queue, queues);
    collector.add_workers(request).await?;
    Ok(json::ok(&collector.into_results()))
}
