//! Policies of queues and handlers: limits of their jobs, and weights of the keys of these limits.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use tidegate_workflow::{PolicyTarget, Weight};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::body::{self, NoBody};
use crate::http::json;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::views::workflow_limits::{EntryPair, LimitBody, LimitShown};

/// Limits that each job of a queue or a handler gets in front of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitsDefinition))]
pub(crate) struct LimitsBody {
    #[serde(deserialize_with = "body::objects")]
    #[cfg_attr(test, schema(max_items = 4))]
    limits: Vec<LimitBody>,
}

/// How the keys of a queue weigh against each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = WeightsDefinition))]
pub(crate) struct WeightsBody {
    #[serde(deserialize_with = "body::objects")]
    #[cfg_attr(test, schema(max_items = 1000))]
    weights: Vec<WeightBody>,
}

/// The weight of jobs of which one limit has all of these entries.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = WeightDefinition))]
struct WeightBody {
    /// Pairs of a key and a value.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>, min_items = 1, max_items = 8))]
    entries: Vec<EntryPair>,
    /// How many of their jobs are handed out for each job of a key without a weight.
    #[cfg_attr(test, schema(minimum = 1, maximum = 1000))]
    weight: u32,
}

/// The limits of a queue or a handler.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitsOf))]
pub(crate) struct LimitsShown<'a> {
    /// The queue or the handler.
    name: &'a str,
    limits: Vec<LimitShown>,
}

/// The weights of a queue.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = WeightsOf))]
pub(crate) struct WeightsShown<'a> {
    /// The queue.
    name: &'a str,
    weights: Vec<WeightShown>,
}

/// A weight.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Weight))]
struct WeightShown {
    /// Pairs of a key and a value.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>))]
    entries: Vec<(String, String)>,
    weight: u32,
}

/// Shows the limits of the queue or the handler that the path names.
pub(crate) async fn show_limits(
    request: &RequestContext<'_>,
    target: fn(String) -> PolicyTarget,
) -> HandlerResult {
    let name = request.matched.name(0)?;
    let policies = request.engine().policies();
    let limits = policies.limits(&target(name.clone()));
    let limits = limits
        .iter()
        .cloned()
        .map(LimitShown::from_definition)
        .collect();
    Ok(json::ok(&LimitsShown {
        name: &name,
        limits,
    }))
}

pub(crate) async fn set_limits(
    request: &RequestContext<'_>,
    target: fn(String) -> PolicyTarget,
) -> HandlerResult {
    let name = request.matched.name(0)?;
    let LimitsBody { limits } = body::read(request.body)?;
    let limits = LimitBody::resolve_all(limits, &"limits")?;
    request.engine().set_limits(&target(name), &limits).await?;
    show_limits(request, target).await
}

pub(crate) async fn remove_limits(
    request: &RequestContext<'_>,
    target: fn(String) -> PolicyTarget,
) -> HandlerResult {
    body::read_optional::<NoBody>(request.body)?;
    let name = request.matched.name(0)?;
    request.engine().set_limits(&target(name), &[]).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Shows the weights of the queue that the path names.
pub(crate) async fn show_weights(request: &RequestContext<'_>) -> HandlerResult {
    let name = request.matched.name(0)?;
    let weight = |Weight { entries, weight }| WeightShown { entries, weight };
    let policies = request.engine().policies();
    let weights = policies.weights(&name);
    let weights = weights.iter().cloned().map(weight).collect();
    Ok(json::ok(&WeightsShown {
        name: &name,
        weights,
    }))
}

pub(crate) async fn set_weights(request: &RequestContext<'_>) -> HandlerResult {
    let name = request.matched.name(0)?;
    let WeightsBody { weights } = body::read(request.body)?;
    let weight = |WeightBody { entries, weight }| Weight {
        entries: EntryPair::pairs(entries),
        weight,
    };
    let weights: Vec<Weight> = weights.into_iter().map(weight).collect();
    request.engine().set_weights(&name, &weights).await?;
    show_weights(request).await
}

pub(crate) async fn remove_weights(request: &RequestContext<'_>) -> HandlerResult {
    body::read_optional::<NoBody>(request.body)?;
    let name = request.matched.name(0)?;
    request.engine().set_weights(&name, &[]).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
