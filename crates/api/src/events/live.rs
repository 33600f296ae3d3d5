//! Stream of everything that one browser watches: browsers open few connections to one server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;

use serde::Serialize;
use tidegate_workflow::WorkflowId;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
#[cfg(test)]
use utoipa::ToSchema;

use crate::events::{self, EventSink, StreamSlots};
use crate::http::auth;
use crate::http::json::Id;
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::state::app_state::{AppState, HandlerResult, RequestContext};
use crate::state::feeds::frames::{
    KEEP_ALIVE_COMMENT, KEEP_ALIVE_INTERVAL, event_text, removed_event, stream,
};
use crate::status::overview;

/// Most targets of one stream. Each costs as much as a stream of its own.
const MAX_TARGETS: usize = 16;
/// Interval of the overviews. A slow reader gets fewer of them.
const OVERVIEW_INTERVAL: Duration = Duration::from_secs(1);
/// Chunks that are queued for a slow reader.
const MAX_QUEUED_CHUNKS: usize = 4;

/// Topic of the events that follow.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct OfEvent {
    /// The workflow. Absent: the overview.
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<Id>,
}

/// Target that a browser watches.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WatchTarget {
    Overview,
    /// Workflow, and the version that the reader has of it.
    Workflow(WorkflowId, Option<String>),
}

pub(crate) async fn live(request: &RequestContext<'_>) -> HandlerResult {
    let targets = parse_targets(request.query)?;
    let is_workflow = |target: &WatchTarget| matches!(target, WatchTarget::Workflow(..));
    if targets.iter().any(is_workflow) {
        auth::check_workflows(&request.api.access)?;
        let drain = &request.api.hooks.drain;
        request.api.store_gate.wait_until_open(drain).await?;
    }
    let slots = events::reserve_streams(request, targets.len())?;
    let (chunks, receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
    let sink = EventSink::new(chunks);
    let tasks = &request.api.hooks.tasks;
    for target in targets {
        match target {
            WatchTarget::Overview => {
                tasks.spawn(send_overviews(
                    request.api.clone(),
                    sink.for_topic(topic_event(None)),
                ));
            }
            WatchTarget::Workflow(id, version) => {
                let sink = sink.for_topic(topic_event(Some(id)));
                let slots = Arc::clone(&slots);
                follow(request, id, version, sink, slots).await?;
            }
        }
    }
    tasks.spawn(keep_open(sink, request.api.hooks.drain.clone(), slots));
    Ok(stream(receiver))
}

/// Follows a workflow, or sends that there is no such workflow: the reader still wants the events of
/// the other targets.
async fn follow(
    request: &RequestContext<'_>,
    id: WorkflowId,
    version: Option<String>,
    sink: EventSink,
    slots: Arc<StreamSlots>,
) -> Result<(), Problem> {
    match events::follow(request, id, version, sink.clone(), slots).await {
        Err(problem) if problem.code == Code::WorkflowNotFound => {
            let send = async move { sink.send(removed_event(Id(id))).await };
            request.api.hooks.tasks.spawn(send);
            Ok(())
        }
        followed => followed,
    }
}

/// Sends comments that keep the stream open, even if all its targets are gone.
async fn keep_open(outlet: EventSink, drain: CancellationToken, _slots: Arc<StreamSlots>) {
    let speak = async {
        loop {
            sleep(KEEP_ALIVE_INTERVAL).await;
            if !outlet.send(Bytes::from_static(KEEP_ALIVE_COMMENT)).await {
                return;
            }
        }
    };
    tokio::select! {
        () = speak => {}
        () = outlet.closed() => {}
        () = drain.cancelled() => {}
    }
}

/// Parses the targets of the query.
fn parse_targets(query: Option<&str>) -> Result<Vec<WatchTarget>, Problem> {
    let mut query = Query::new(query)?;
    let list = query.remove("watch").unwrap_or_default();
    query.finish()?;
    let mut targets = Vec::new();
    for text in list.split(',').filter(|text| !text.is_empty()) {
        let target = WatchTarget::parse(text)?;
        if !targets.contains(&target) {
            targets.push(target);
        }
        if targets.len() > MAX_TARGETS {
            let detail = format!("at most {MAX_TARGETS} things can be watched at once");
            return Err(Problem::new(Code::InvalidField, detail));
        }
    }
    if targets.is_empty() {
        return Err(Problem::field(
            "watch",
            "name what to watch: `overview`, `workflow:ID`, or several with commas",
        ));
    }
    Ok(targets)
}

impl WatchTarget {
    fn parse(text: &str) -> Result<Self, Problem> {
        if text == "overview" {
            return Ok(Self::Overview);
        }
        let Some(about) = text.strip_prefix("workflow:") else {
            return Err(Problem::field(
                "watch",
                "expected `overview`, `workflow:ID` or `workflow:ID@VERSION`",
            ));
        };
        let (id, version) = match about.split_once('@') {
            Some((id, version)) => (id, Some(version.to_owned())),
            None => (about, None),
        };
        let wrong = |error| Problem::field("watch", format!("{error}"));
        Ok(Self::Workflow(id.parse().map_err(wrong)?, version))
    }
}

fn topic_event(workflow: Option<WorkflowId>) -> Bytes {
    let workflow = workflow.map(Id);
    event_text("of", &OfEvent { workflow })
}

/// Sends overviews until the reader goes or the server drains.
async fn send_overviews(api: AppState, outlet: EventSink) {
    let mut turns = interval(OVERVIEW_INTERVAL);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = api.hooks.drain.clone();
    loop {
        tokio::select! {
            _ = turns.tick() => {}
            () = outlet.closed() => return,
            () = ended.cancelled() => return,
        }
        let text = event_text("overview", &overview::take_sample(&api));
        tokio::select! {
            there = outlet.send(text) => if !there { return },
            () = ended.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_is_a_list() {
        let id = "01M85NP2YQ8XCYNT3A18F6YK00";
        let workflow = |version: Option<&str>| {
            WatchTarget::Workflow(id.parse().unwrap(), version.map(str::to_owned))
        };
        let found = |query: &str| parse_targets(Some(query)).unwrap();
        assert_eq!(found("watch=overview"), [WatchTarget::Overview]);
        assert_eq!(
            found(&format!(
                "watch=workflow%3A{id}@7,overview,,overview,workflow:{id}"
            )),
            [workflow(Some("7")), WatchTarget::Overview, workflow(None)]
        );
        for query in [
            "",
            "watch=",
            "watch=all",
            "watch=workflow:x",
            "watch=overview&more=1",
        ] {
            parse_targets(Some(query)).unwrap_err();
        }
        let many: Vec<String> = (0..=MAX_TARGETS)
            .map(|at| format!("workflow:{id}@{at}"))
            .collect();
        parse_targets(Some(&format!("watch={}", many[1..].join(",")))).unwrap();
        parse_targets(Some(&format!("watch={}", many.join(",")))).unwrap_err();
    }
}
