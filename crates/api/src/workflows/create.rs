//! Creation of one workflow or of many.

use axum::http::{StatusCode, header};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_workflow::{Created, Graph, MAX_JOBS, NewWorkflow, Policies};
#[cfg(test)]
use utoipa::ToSchema;

use super::definition::DefinitionBody;
use super::warnings::{CreationWarning, domains_without_rule};
use crate::http::body;
use crate::http::enum_text::StatusWord;
use crate::http::json::{self, Id};
use crate::http::problem::{self, Code, Problem};
use crate::http::request_id::RequestId;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::state::error_log;
use crate::state::metrics::CountedEvent;
use crate::state::traces::{CreationSpan, Creations};

/// Most workflows of one call.
const MAX_WORKFLOWS: usize = 1_000;
/// Most jobs of one call.
const MAX_BATCH_JOBS: usize = MAX_JOBS;

/// Workflows to create. They may have 131,072 jobs in all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Batch))]
pub(crate) struct BatchBody<'a> {
    #[serde(borrow, deserialize_with = "body::objects")]
    #[cfg_attr(test, schema(max_items = 1000))]
    workflows: Vec<DefinitionBody<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBatchBody<'a> {
    #[serde(borrow)]
    workflows: Vec<&'a RawValue>,
}

/// A workflow that was created, now or before.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Created))]
pub(crate) struct CreatedBody<'a> {
    id: Id,
    name: &'a str,
    status: StatusWord,
    /// Whether it was created before, with the same idempotency key.
    existing: bool,
    /// Parts of it that have no effect, at most eight; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<CreationWarning>,
}

/// Result of each workflow, in the order of the request.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = BatchResult))]
pub(crate) struct BatchAnswer<'a> {
    items: Vec<BatchItem<'a>>,
}

/// Result of one workflow: `id`, `existing` and perhaps `warnings`, or `error`.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct BatchItem<'a> {
    /// The status that a single call would have got.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Id>,
    /// Whether it was created before, with the same idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    existing: Option<bool>,
    /// Parts of it that have no effect, at most eight; left out if there are none.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [CreationWarning],
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::ProblemBody<'a>>,
}

/// Workflow that was created, now or before, and the parts of it that have no effect.
struct Accepted {
    created: Created,
    warnings: Vec<CreationWarning>,
}

impl<'a> BatchItem<'a> {
    fn from_outcome(outcome: &'a Result<Accepted, Problem>, request_id: &'a RequestId) -> Self {
        let accepted = outcome.as_ref().ok();
        Self {
            status: accepted.map_or_else(
                || problem::item_status(outcome),
                |accepted| status(accepted.created.existing).as_u16(),
            ),
            id: accepted.map(|accepted| Id(accepted.created.workflow)),
            existing: accepted.map(|accepted| accepted.created.existing),
            warnings: accepted.map_or(&[], |accepted| &accepted.warnings),
            error: problem::item_error(outcome, request_id),
        }
    }
}

const fn status(existing: bool) -> StatusCode {
    if existing {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    }
}

/// Returns the idempotency key of the request's header.
fn idempotency_key(request: &RequestContext<'_>) -> Result<Option<String>, Problem> {
    let key = request
        .headers
        .get("idempotency-key")
        .map(|key| key.to_str().map(str::to_owned));
    key.transpose()
        .map_err(|_| Problem::field("Idempotency-Key", "expected visible ASCII characters"))
}

/// Returns the key of an item of a batch that has none itself.
fn item_key(key: Option<&str>, at: usize) -> Option<String> {
    key.map(|key| format!("{key}#{at}"))
}

pub(crate) async fn create(request: &RequestContext<'_>) -> HandlerResult {
    let mut creating =
        CreationSpan::begin(&request.api.hooks.traces, "/v1/workflows", request.headers);
    let accepted = create_one(request, &mut creating).await;
    match &accepted {
        Ok((Accepted { created, .. }, name)) => {
            creating.end(status(created.existing), Creations::one(created, name));
        }
        Err(problem) => creating.end(problem.status(), Creations::None),
    }
    let (Accepted { created, warnings }, name) = accepted?;
    let Created {
        workflow, existing, ..
    } = created;
    request
        .api
        .metrics
        .add(CountedEvent::Created, u64::from(!existing));
    let body = CreatedBody {
        id: Id(workflow),
        name: &name,
        status: created.status.into(),
        existing,
        warnings,
    };
    Ok(body.response())
}

impl CreatedBody<'_> {
    /// Makes the answer, with the place of the workflow in its header.
    fn response(&self) -> Response {
        let mut response = json::answer(status(self.existing), self);
        let location = format!("/v1/workflows/{}", self.id.0)
            .parse()
            .expect("an id is visible ASCII");
        response.headers_mut().insert(header::LOCATION, location);
        response
    }
}

/// Creates the workflow of a call. Returns it and its name.
async fn create_one(
    request: &RequestContext<'_>,
    creating: &mut CreationSpan,
) -> Result<(Accepted, String), Problem> {
    let key = idempotency_key(request)?;
    let policies = request.engine().policies();
    let new = read(request, creating, move |body, creating| {
        body::read::<DefinitionBody<'_>>(body)?.resolve(key, &policies, creating)
    });
    let new = new.await?;
    let name = new.graph.label.name.clone();
    let warnings = find_warnings(request, &new.graph);
    let created = request.engine().create(vec![new], request.now()).await;
    let created = created
        .into_iter()
        .next()
        .expect("one answer for one workflow")?;
    Ok((Accepted { created, warnings }, name))
}

/// Returns the parts of a graph that have no effect. The list is empty if the server has no
/// configuration.
fn find_warnings(request: &RequestContext<'_>, graph: &Graph) -> Vec<CreationWarning> {
    if !graph.has_limits() {
        return Vec::new();
    }
    let configuration = request.api.hooks.limits.limiter.configuration();
    configuration.map_or_else(Vec::new, |known| domains_without_rule(graph, &known))
}

/// Parses the body, perhaps on another thread. The call's trace goes there and comes back.
async fn read<T: Send + 'static>(
    request: &RequestContext<'_>,
    creating: &mut CreationSpan,
    read: impl FnOnce(&[u8], &mut CreationSpan) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let mut moved = std::mem::take(creating);
    let (result, moved) = request
        .read(move |body| (read(body, &mut moved), moved))
        .await;
    *creating = moved;
    result
}

pub(crate) async fn create_batch(request: &RequestContext<'_>) -> HandlerResult {
    let mut creating = CreationSpan::begin(
        &request.api.hooks.traces,
        "/v1/workflows:batch",
        request.headers,
    );
    let outcomes = create_all(request, &mut creating).await;
    match &outcomes {
        Ok(outcomes) => {
            creating.end(
                StatusCode::OK,
                Creations::Many {
                    requested: outcomes.len(),
                    created: count_new(outcomes),
                },
            );
        }
        Err(problem) => creating.end(problem.status(), Creations::None),
    }
    let outcomes = outcomes?;
    request
        .api
        .metrics
        .add(CountedEvent::Created, count_new(&outcomes) as u64);
    error_log::log_item_problems(request, problem::problems(&outcomes));
    Ok(json::ok(&BatchAnswer {
        items: outcomes
            .iter()
            .map(|outcome| BatchItem::from_outcome(outcome, request.id))
            .collect(),
    }))
}

/// Returns the number of workflows that did not exist before.
fn count_new(outcomes: &[Result<Accepted, Problem>]) -> usize {
    let accepted = outcomes.iter().flatten();
    accepted.filter(|one| !one.created.existing).count()
}

/// Returns the idempotency key of a batch.
fn batch_key(request: &RequestContext<'_>) -> Result<Option<String>, Problem> {
    let key = idempotency_key(request)?;
    // The keys of the items would be equal in every such call.
    if key.as_deref() == Some("") {
        return Err(Problem::field(
            "Idempotency-Key",
            "it is empty: send a key, or leave the header out",
        ));
    }
    Ok(key)
}

/// Creates the workflows of a batch. Returns the result of each.
async fn create_all(
    request: &RequestContext<'_>,
    creating: &mut CreationSpan,
) -> Result<Vec<Result<Accepted, Problem>>, Problem> {
    let mut new = Vec::new();
    let mut checks = Vec::new();
    let key = batch_key(request)?;
    let policies = request.engine().policies();
    let all = read(request, creating, move |body, creating| {
        parse_definitions(body, key.as_deref(), &policies, creating)
    });
    for resolved in all.await? {
        checks.push(resolved.map(|workflow| {
            let warnings = find_warnings(request, &workflow.graph);
            new.push(workflow);
            warnings
        }));
    }
    let mut created = request
        .engine()
        .create(new, request.now())
        .await
        .into_iter();
    let outcome = |warnings: Result<_, Problem>| {
        let warnings = warnings?;
        let created = created.next().expect("one answer for each workflow")?;
        Ok(Accepted { created, warnings })
    };
    Ok(checks.into_iter().map(outcome).collect())
}

/// Parses the workflows of a batch, each valid or not by itself.
fn parse_definitions(
    body: &[u8],
    key: Option<&str>,
    policies: &Policies,
    creating: &mut CreationSpan,
) -> Result<Vec<Result<NewWorkflow, Problem>>, Problem> {
    let mut resolve = |(at, definition): (usize, Result<DefinitionBody<'_>, Problem>)| {
        definition
            .and_then(|definition| definition.resolve_item(item_key(key, at), policies, creating))
            .map_err(|problem| problem.under_prefix(&format!("workflows[{at}].")))
    };
    if let Some(BatchBody { workflows }) = body::read_correct(body) {
        check_batch(&workflows)?;
        let workflows = workflows.into_iter().map(Ok).enumerate();
        return Ok(workflows.map(resolve).collect());
    }
    // One item is wrong. The others are created nevertheless, so each is parsed by itself.
    let RawBatchBody { workflows } = body::read(body)?;
    body::check_number(workflows.len(), MAX_WORKFLOWS, "workflows")?;
    let workflows = workflows.into_iter().enumerate();
    Ok(workflows
        .map(|(at, raw)| resolve((at, body::read(raw.get().as_bytes()))))
        .collect())
}

/// Checks how many workflows a batch has, and how many jobs they have in all.
fn check_batch(workflows: &[DefinitionBody<'_>]) -> Result<(), Problem> {
    body::check_number(workflows.len(), MAX_WORKFLOWS, "workflows")?;
    let jobs = workflows.iter().map(|workflow| workflow.jobs.len());
    if jobs.sum::<usize>() > MAX_BATCH_JOBS {
        let detail =
            format!("more than {MAX_BATCH_JOBS} jobs in all: send the workflows in several calls");
        return Err(Problem::new(Code::PayloadTooLarge, detail).at("workflows"));
    }
    Ok(())
}
