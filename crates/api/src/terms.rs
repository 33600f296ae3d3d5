//! What queues and handlers give their jobs: limits, and weights of the keys of these.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use tidegate_workflow::{Subject, Weight};
#[cfg(test)]
use utoipa::ToSchema;

use crate::edge::ask::{Answer, Ask};
use crate::edge::body::{self, NoBody};
use crate::edge::json;
use crate::edge::problem::Problem;
use crate::edge::route::TermsOf;
use crate::workflows::limits::{Entry, LimitBody, LimitShown};

/// Limits that each job of a queue or a handler gets in front of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitsDefinition))]
pub(crate) struct LimitsBody {
    #[serde(deserialize_with = "body::objects")]
    #[cfg_attr(test, schema(max_items = 4))]
    limits: Vec<LimitBody>,
}

/// How the keys of a queue weigh against each other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = WeightsDefinition))]
pub(crate) struct WeightsBody {
    #[serde(deserialize_with = "body::objects")]
    #[cfg_attr(test, schema(max_items = 1000))]
    weights: Vec<WeightBody>,
}

/// The weight of jobs of which one limit has all of these entries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = WeightDefinition))]
struct WeightBody {
    /// Pairs of a key and a value.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>, min_items = 1, max_items = 8))]
    entries: Vec<Entry>,
    /// How many of their jobs are handed out for each job of a key without a weight.
    #[cfg_attr(test, schema(minimum = 1, maximum = 1000))]
    weight: u32,
}

/// The limits of a queue or a handler.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitsOf))]
pub(crate) struct LimitsShown<'a> {
    /// The queue or the handler.
    name: &'a str,
    limits: Vec<LimitShown>,
}

/// The weights of a queue.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = WeightsOf))]
pub(crate) struct WeightsShown<'a> {
    /// The queue.
    name: &'a str,
    weights: Vec<WeightShown>,
}

/// A weight.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Weight))]
struct WeightShown {
    /// Pairs of a key and a value.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>))]
    entries: Vec<(String, String)>,
    weight: u32,
}

/// What has limits. None: it is about weights.
fn subject(of: TermsOf, name: &str) -> Option<Subject> {
    match of {
        TermsOf::QueueLimits => Some(Subject::Queue(name.to_owned())),
        TermsOf::HandlerLimits => Some(Subject::Handler(name.to_owned())),
        TermsOf::QueueWeights => None,
    }
}

pub(crate) fn show(ask: &Ask<'_>, of: TermsOf) -> Answer {
    let (name, terms) = (ask.matched.name(0)?, ask.api.engine().terms());
    let name = &*name;
    Ok(match subject(of, name) {
        Some(subject) => {
            let limits = terms
                .limits(&subject)
                .iter()
                .cloned()
                .map(LimitShown::of)
                .collect();
            json::ok(&LimitsShown { name, limits })
        }
        None => {
            let weight = |Weight { entries, weight }| WeightShown { entries, weight };
            let weights = terms.weights(name).iter().cloned().map(weight).collect();
            json::ok(&WeightsShown { name, weights })
        }
    })
}

pub(crate) async fn set(ask: &Ask<'_>, of: TermsOf) -> Answer {
    let name = ask.matched.name(0)?;
    let engine = ask.api.engine();
    match subject(of, &name) {
        Some(subject) => {
            let LimitsBody { limits } = body::read(ask.body)?;
            engine
                .set_limits(&subject, &LimitBody::resolve_all(limits, &"limits")?)
                .await?;
        }
        None => {
            let WeightsBody { weights } = body::read(ask.body)?;
            let weight = |WeightBody { entries, weight }| Weight {
                entries: Entry::pairs(entries),
                weight,
            };
            engine
                .set_weights(&name, &weights.into_iter().map(weight).collect::<Vec<_>>())
                .await?;
        }
    }
    show(ask, of)
}

pub(crate) async fn remove(ask: &Ask<'_>, of: TermsOf) -> Answer {
    body::read_optional::<NoBody>(ask.body)?;
    let name = ask.matched.name(0)?;
    let engine = ask.api.engine();
    match subject(of, &name) {
        Some(subject) => engine.set_limits(&subject, &[]).await,
        None => engine.set_weights(&name, &[]).await,
    }
    .map_err(Problem::from)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
