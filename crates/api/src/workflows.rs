//! Workflows: create, list, show, and what operators do to them.

pub(crate) mod bulk;
pub(crate) mod definition;
pub(crate) mod graph;

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_workflow::{
    Action, Created, EngineError, Filter, JobIndex, JobResult, Label, Listed, Meta, NewWorkflow, Order,
    Query as ListQuery, RestartScope, Retention, Snapshot, Status, Timestamp, WorkflowId,
};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use crate::activity::Event;
use crate::edge::ask::{Answer, Ask, Context, LOOK};
use crate::edge::body;
use crate::edge::json::Json;
use crate::edge::problem::{Code, Problem};
use crate::edge::query::Query;
use crate::edge::route::WorkflowAction;
use crate::jobs;
use definition::{DefinitionBody, RetentionBody, on_failure_word};

/// Most items of a page.
pub(crate) const MOST_ITEMS: usize = 1_000;
/// Most workflows of one call.
const MOST_WORKFLOWS: usize = 1_000;
/// Most jobs of one call.
const MOST_JOBS: usize = 100_000;
/// Most bytes of outputs and errors in one answer.
const MOST_RESULTS: usize = 64 * 1024 * 1024;
/// Jobs whose results are read with one call of the store.
const RESULTS_AT_A_TIME: usize = 256;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How much of a workflow is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Summary,
    Jobs,
    Full,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody<'a> {
    #[serde(borrow)]
    workflows: Vec<DefinitionBody<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBatchBody<'a> {
    #[serde(borrow)]
    workflows: Vec<&'a RawValue>,
}

pub(crate) async fn create(ask: &Ask<'_>) -> Answer {
    let key = ask.headers.get("idempotency-key").map(|key| key.to_str().map(str::to_owned));
    let key = key.transpose().map_err(|_| Problem::field("Idempotency-Key", "expected visible ASCII characters"))?;
    let definition: DefinitionBody<'_> = body::read(ask.body)?;
    let new = definition.resolve(key)?;
    let name = new.graph.label.name.clone();
    let created = ask.api.engine.create(vec![new], ask.api.now()).await;
    let created = created.into_iter().next().expect("one answer for one workflow")?;
    let status = if created.existing { StatusCode::OK } else { StatusCode::CREATED };
    ask.api.activity.add(Event::Created, u64::from(!created.existing));
    let json = Json::of(|json| {
        json.key("id").plain(created.workflow);
        json.key("name").string(&name);
        json.key("status").plain(created.status.word());
        json.key("existing").boolean(created.existing);
    });
    let mut response = json.answer(status);
    let location = format!("/v1/workflows/{}", created.workflow).parse().expect("an id is visible ASCII");
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

pub(crate) async fn create_batch(ask: &Ask<'_>) -> Answer {
    let mut new = Vec::new();
    let mut order = Vec::new();
    for resolved in definitions(ask.body)? {
        order.push(match resolved {
            Ok(workflow) => {
                new.push(workflow);
                None
            }
            Err(problem) => Some(problem),
        });
    }
    let mut created = ask.api.engine.create(new, ask.api.now()).await.into_iter();
    let json = Json::of(|json| {
        json.key("items").array(order, |json, refused| {
            let created = match refused {
                Some(problem) => Err(problem),
                None => created.next().expect("one answer for each workflow").map_err(Problem::from),
            };
            match created {
                Ok(Created { workflow, existing, .. }) => {
                    ask.api.activity.add(Event::Created, u64::from(!existing));
                    let status = if existing { StatusCode::OK } else { StatusCode::CREATED };
                    json.object(|json| {
                        json.key("status").number(status.as_u16());
                        json.key("id").plain(workflow);
                        json.key("existing").boolean(existing);
                    });
                }
                Err(problem) => problem.write_item(json),
            }
        });
    });
    Ok(json.ok())
}

/// The workflows of a batch, each right or wrong for itself.
fn definitions(body: &[u8]) -> Result<Vec<Result<NewWorkflow, Problem>>, Problem> {
    let prefix = |at: usize| format!("workflows[{at}].");
    let too_many = |count: usize| {
        let detail = format!("{count} workflows, more than {MOST_WORKFLOWS}: send them in several calls");
        Problem::new(Code::PayloadTooLarge, detail).at("workflows")
    };
    if let Ok(BatchBody { workflows }) = serde_json::from_slice(body) {
        if workflows.len() > MOST_WORKFLOWS {
            return Err(too_many(workflows.len()));
        }
        if workflows.iter().map(|workflow| workflow.jobs.len()).sum::<usize>() > MOST_JOBS {
            let detail = format!("more than {MOST_JOBS} jobs in all: send the workflows in several calls");
            return Err(Problem::new(Code::PayloadTooLarge, detail).at("workflows"));
        }
        let resolved = workflows.into_iter().enumerate();
        return Ok(resolved.map(|(at, one)| one.resolve(None).map_err(|problem| problem.under(&prefix(at)))).collect());
    }
    // Something is wrong: the others are created all the same, so each is read for itself.
    let RawBatchBody { workflows } = body::read(body)?;
    if workflows.len() > MOST_WORKFLOWS {
        return Err(too_many(workflows.len()));
    }
    let one = |(at, raw): (usize, &RawValue)| {
        let definition = body::read::<DefinitionBody<'_>>(raw.get().as_bytes());
        definition.and_then(|definition| definition.resolve(None)).map_err(|problem| problem.under(&prefix(at)))
    };
    Ok(workflows.into_iter().enumerate().map(one).collect())
}

/// Which workflows a query asks for.
fn filter(query: &mut Query) -> Result<Filter, Problem> {
    Ok(Filter {
        statuses: query.statuses()?,
        name: query.take("name"),
        tag: query.take("tag"),
        created_from: query.moment("created_after")?,
        created_to: query.moment("created_before")?,
        id_prefix: query.id_prefix()?,
    })
}

pub(crate) async fn list(ask: &Ask<'_>) -> Answer {
    let mut query = Query::new(ask.query)?;
    let filter = filter(&mut query)?;
    let order = match query.take("order").as_deref() {
        None | Some("newest") => Order::NewestFirst,
        Some("oldest") => Order::OldestFirst,
        Some(_) => return Err(Problem::field("order", "expected newest or oldest")),
    };
    let limit = query.limit(100, MOST_ITEMS)?;
    let after = match query.take("cursor") {
        Some(text) => {
            Some(text.parse().map_err(|_| Problem::new(Code::InvalidCursor, "it is not one of next_cursor"))?)
        }
        None => None,
    };
    query.end()?;
    let page = ask.api.engine.list(&ListQuery { filter, order, limit, after }).await?;
    let json = Json::of(|json| {
        json.key("items").array(&page.items, |json, Listed { workflow, label, meta }| {
            json.object(|json| write_summary(json, *workflow, label, meta));
        });
        json.key("next_cursor").maybe(page.next, Json::plain);
    });
    Ok(json.ok())
}

pub(crate) async fn count(ask: &Ask<'_>) -> Answer {
    let mut query = Query::new(ask.query)?;
    let filter = filter(&mut query)?;
    let by = query.take("by");
    query.end()?;
    let engine = &ask.api.engine;
    let write = |json: &mut Json, counts: Vec<(Status, u64)>| {
        json.object(|json| counts.into_iter().for_each(|(status, number)| json.key(status.word()).number(number)));
    };
    match by.as_deref() {
        None => {
            let counts = engine.count(&filter).await?;
            let total: u64 = counts.iter().map(|(_, number)| number).sum();
            let json = Json::of(|json| {
                json.key("total").number(total);
                write(json.key("by_status"), counts);
            });
            Ok(json.ok())
        }
        Some("name") => {
            let named = engine.count_by_name(&filter).await?;
            let json = Json::of(|json| {
                json.key("by_name").object(|json| {
                    named.into_iter().for_each(|(name, counts)| write(json.key(&name), counts));
                });
            });
            Ok(json.ok())
        }
        Some(_) => Err(Problem::field("by", "expected name")),
    }
}

pub(crate) fn write_summary(json: &mut Json, id: WorkflowId, label: &Label, meta: &Meta) {
    json.key("id").plain(id);
    json.key("name").string(&label.name);
    json.key("tags").strings(label.tags.iter().map(String::as_str));
    json.key("status").plain(meta.status.word());
    json.key("created_at").time(meta.created_at);
    let mut maybe = |name: &str, moment: Option<Timestamp>| json.key(name).maybe(moment, Json::time);
    maybe("started_at", meta.started_at);
    maybe("finished_at", meta.finished_at);
    maybe("expires_at", meta.expires_at);
    json.key("job_counts").object(|json| {
        json.key("total").number(meta.counts.total() as u64);
        meta.counts.each().for_each(|(word, number)| json.key(word).number(number));
    });
}

pub(crate) fn summary(snapshot: &Snapshot) -> Json {
    Json::of(|json| write_summary(json, snapshot.id(), &snapshot.graph().label, snapshot.meta()))
}

pub(crate) async fn by_key(ask: &Ask<'_>) -> Answer {
    let mut query = Query::new(ask.query)?;
    let key = query.take("key").ok_or_else(|| Problem::field("key", "expected the idempotency key of a workflow"))?;
    query.end()?;
    let none = || Problem::new(Code::WorkflowNotFound, format!("no workflow has the idempotency key '{key}'"));
    let id = ask.api.engine.find_by_key(&key).await?.ok_or_else(none)?;
    Ok(summary(&ask.api.engine.show(id).await?).ok())
}

pub(crate) async fn show(ask: &Ask<'_>) -> Answer {
    let id = ask.workflow()?;
    let mut query = Query::new(ask.query)?;
    let view = match query.take("view").as_deref() {
        None | Some("summary") => View::Summary,
        Some("jobs") => View::Jobs,
        Some("full") => View::Full,
        Some(_) => return Err(Problem::field("view", "expected summary, jobs or full")),
    };
    let wait = query.span("wait", LONGEST_WAIT)?.unwrap_or_default();
    query.end()?;
    let snapshot = settled(ask.api, id, wait).await?;
    if view == View::Summary {
        return Ok(summary(&snapshot).ok());
    }
    let indices: Vec<JobIndex> = (0..snapshot.jobs().len()).map(|at| JobIndex(at as u16)).collect();
    let results = match view {
        View::Full => Some(all_results(ask.api, id, &indices).await?),
        _ => None,
    };
    let graph = snapshot.graph();
    let json = Json::of(|json| {
        write_summary(json, id, &graph.label, snapshot.meta());
        json.key("on_failure").plain(on_failure_word(graph.on_failure));
        json.key("globals").maybe(graph.globals.as_ref(), |json, globals| json.raw(globals.text().as_bytes()));
        let (kept, forever) = match snapshot.meta().retention {
            Some(Retention::For(span)) => (Some(span), false),
            Some(Retention::Forever) => (None, true),
            None => (None, false),
        };
        json.key("retention_ms").maybe(kept, |json, span| json.number(span.as_millis() as u64));
        json.key("keep_forever").boolean(forever);
        json.key("jobs").array(indices, |json, index| {
            let result = results.as_ref().map(|results| &results[index.index()]);
            jobs::write(json, &snapshot, index, result);
        });
    });
    Ok(json.ok())
}

/// What all jobs left behind, read in parts, so that what is too much for one answer is not gathered first.
async fn all_results(api: &Context, id: WorkflowId, jobs: &[JobIndex]) -> Result<Vec<JobResult>, Problem> {
    let mut all = Vec::with_capacity(jobs.len());
    let mut bytes = 0;
    for some in jobs.chunks(RESULTS_AT_A_TIME) {
        let results = api.engine.results(id, some).await?;
        bytes += results.iter().map(size).sum::<usize>();
        if bytes > MOST_RESULTS {
            let detail = format!("outputs and errors have more than {MOST_RESULTS} bytes; ask for jobs one by one");
            return Err(Problem::new(Code::PayloadTooLarge, detail).at("view"));
        }
        all.extend(results);
    }
    Ok(all)
}

fn size(result: &JobResult) -> usize {
    let errors = result.errors.iter().map(|error| error.message.len() + error.trace.as_ref().map_or(0, String::len));
    result.output.as_ref().map_or(0, |output| output.len()) + errors.sum::<usize>()
}

/// The workflow once it is over, or as it is when the time has passed or the server drains.
async fn settled(api: &Context, id: WorkflowId, wait: Duration) -> Result<Snapshot, EngineError> {
    let until = Instant::now() + wait;
    let mut notices = api.engine.notices();
    loop {
        // Most looks find that it goes on, and need not read all of it.
        let over = wait.is_zero() || api.engine.glance(id).await?.status.is_over();
        if over || Instant::now() >= until || api.host.drain.is_cancelled() {
            return api.engine.show(id).await;
        }
        let next = if api.has_company() { until.min(Instant::now() + LOOK) } else { until };
        let ended = async {
            loop {
                match notices.recv().await {
                    Ok((about, notice)) if about == id && notice.status.is_none_or(Status::is_over) => return,
                    Ok(_) => {}
                    // What was missed may have been it.
                    Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => return std::future::pending().await,
                }
            }
        };
        tokio::select! {
            _ = timeout_at(next, ended) => {}
            () = api.host.drain.cancelled() => {}
        }
    }
}

pub(crate) async fn delete(ask: &Ask<'_>) -> Answer {
    ask.api.engine.act(ask.workflow()?, Action::Delete, ask.api.now()).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The action that a word of the path stands for.
pub(crate) fn action(word: WorkflowAction) -> Action {
    match word {
        WorkflowAction::Start => Action::Start,
        WorkflowAction::Cancel => Action::Cancel,
        WorkflowAction::Pause => Action::Pause,
        WorkflowAction::Resume => Action::Resume,
        WorkflowAction::Retry => Action::RetryFailed,
    }
}

pub(crate) async fn act(ask: &Ask<'_>, word: WorkflowAction) -> Answer {
    body::read_optional::<NoBody>(ask.body)?;
    done(ask, action(word)).await
}

pub(crate) async fn done(ask: &Ask<'_>, action: Action) -> Answer {
    let id = ask.workflow()?;
    let status = ask.api.engine.act(id, action, ask.api.now()).await?;
    let json = Json::of(|json| {
        json.key("id").plain(id);
        json.key("status").plain(status.word());
    });
    Ok(json.ok())
}

/// Nothing, or an empty object.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoBody {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestartBody {
    jobs: Vec<String>,
    cascade: Option<bool>,
}

pub(crate) async fn restart(ask: &Ask<'_>) -> Answer {
    let RestartBody { jobs, cascade } = body::read(ask.body)?;
    if jobs.is_empty() {
        return Err(Problem::field("jobs", "expected at least one name"));
    }
    let scope = if cascade == Some(true) { RestartScope::AndDescendants } else { RestartScope::Chosen };
    done(ask, Action::Restart { jobs, scope }).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpireBody {
    after: RetentionBody,
}

pub(crate) async fn expire(ask: &Ask<'_>) -> Answer {
    let ExpireBody { after } = body::read(ask.body)?;
    done(ask, Action::Keep(after.0)).await
}
