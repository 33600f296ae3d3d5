//! Stream of everything that one browser watches: browsers open few connections to one server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::response::IntoResponse as _;
use serde::Serialize;
use tidegate_workflow::WorkflowId;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
#[cfg(test)]
use utoipa::ToSchema;

use crate::events::{self, EventSink, Places};
use crate::http::json::Id;
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::http::request::{Answer, AppState, RequestContext};
use crate::overview;

/// Most targets of one stream. Each costs as much as a stream of its own.
const MOST: usize = 16;
/// Interval of the overviews. A slow reader gets fewer of them.
const OFTEN: Duration = Duration::from_secs(1);
/// Chunks that are queued for a slow reader.
const PIECES: usize = 4;

/// Topic of the events that follow.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct OfEvent {
    /// The workflow. Absent: the overview.
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<Id>,
}

/// Target that a browser watches.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Watched {
    Overview,
    /// Workflow, and the version that the reader has of it.
    Workflow(WorkflowId, Option<String>),
}

pub(crate) async fn live(ask: &RequestContext<'_>) -> Answer {
    let watched = watched(ask.query)?;
    let places = events::places(ask, watched.len())?;
    let (pieces, receiver) = mpsc::channel(PIECES);
    let outlet = EventSink::new(pieces);
    let tasks = &ask.api.host.tasks;
    for one in watched {
        match one {
            Watched::Overview => {
                tasks.spawn(tell(ask.api.clone(), outlet.about(of(None))));
            }
            Watched::Workflow(id, version) => {
                let outlet = outlet.about(of(Some(id)));
                match events::follow(ask, id, version, outlet.clone(), Arc::clone(&places)).await {
                    // The reader still wants the events of the other targets.
                    Err(problem) if problem.code == Code::WorkflowNotFound => {
                        tasks.spawn(async move { outlet.hand_over(events::removed(id)).await });
                    }
                    followed => followed?,
                }
            }
        }
    }
    tasks.spawn(keep_open(outlet, ask.api.host.drain.clone(), places));
    Ok(events::stream(receiver).into_response())
}

/// Sends comments that keep the stream open, even if all its targets are gone.
async fn keep_open(outlet: EventSink, drain: CancellationToken, _places: Arc<Places>) {
    let speak = async {
        loop {
            sleep(events::KEEP_ALIVE).await;
            if !outlet
                .hand_over(Bytes::from_static(b": still here\n\n"))
                .await
            {
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
fn watched(query: Option<&str>) -> Result<Vec<Watched>, Problem> {
    let mut query = Query::new(query)?;
    let list = query.take("watch").unwrap_or_default();
    query.end()?;
    let mut all = Vec::new();
    for text in list.split(',').filter(|text| !text.is_empty()) {
        let one = match text.split_once(':') {
            None if text == "overview" => Watched::Overview,
            Some(("workflow", about)) => {
                let (id, version) = about
                    .split_once('@')
                    .map_or((about, None), |(id, version)| (id, Some(version)));
                let id: WorkflowId = id
                    .parse()
                    .map_err(|error| Problem::field("watch", format!("{error}")))?;
                Watched::Workflow(id, version.map(str::to_owned))
            }
            _ => {
                return Err(Problem::field(
                    "watch",
                    "expected `overview`, `workflow:ID` or `workflow:ID@VERSION`",
                ));
            }
        };
        if !all.contains(&one) {
            all.push(one);
        }
        if all.len() > MOST {
            return Err(Problem::new(
                Code::InvalidField,
                format!("at most {MOST} things can be watched at once"),
            ));
        }
    }
    if all.is_empty() {
        return Err(Problem::field(
            "watch",
            "name what to watch: `overview`, `workflow:ID`, or several with commas",
        ));
    }
    Ok(all)
}

fn of(workflow: Option<WorkflowId>) -> Bytes {
    let mut text = Vec::new();
    events::push_event(
        &mut text,
        "of",
        &OfEvent {
            workflow: workflow.map(Id),
        },
    );
    text.into()
}

/// Sends overviews until the reader goes or the server drains.
async fn tell(api: AppState, outlet: EventSink) {
    let mut turns = interval(OFTEN);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = api.host.drain.clone();
    loop {
        tokio::select! {
            _ = turns.tick() => {}
            () = outlet.closed() => return,
            () = ended.cancelled() => return,
        }
        let mut text = Vec::new();
        events::push_event(&mut text, "overview", &overview::moment(&api));
        tokio::select! {
            there = outlet.hand_over(text.into()) => if !there { return },
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
            Watched::Workflow(id.parse().unwrap(), version.map(str::to_owned))
        };
        let found = |query: &str| watched(Some(query)).unwrap();
        assert_eq!(found("watch=overview"), [Watched::Overview]);
        assert_eq!(
            found(&format!(
                "watch=workflow%3A{id}@7,overview,,overview,workflow:{id}"
            )),
            [workflow(Some("7")), Watched::Overview, workflow(None)]
        );
        for query in [
            "",
            "watch=",
            "watch=all",
            "watch=workflow:x",
            "watch=overview&more=1",
        ] {
            watched(Some(query)).unwrap_err();
        }
        let many: Vec<String> = (0..=MOST).map(|at| format!("workflow:{id}@{at}")).collect();
        watched(Some(&format!("watch={}", many[1..].join(",")))).unwrap();
        watched(Some(&format!("watch={}", many.join(",")))).unwrap_err();
    }
}
