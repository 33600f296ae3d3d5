//! Check of a request against the rate limits, without charging it.

use serde::{Deserialize, Serialize};
use tidegate_ratelimit as rate;
#[cfg(test)]
use utoipa::ToSchema;

use super::{pairs, without_store};
use crate::http::body;
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::state::rate_limits::deadline;

/// A question about rate limits, as `/json` takes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitCheck))]
pub(crate) struct CheckBody {
    /// The domain of the configuration of rate limits.
    domain: String,
    #[serde(deserialize_with = "body::objects")]
    #[cfg_attr(test, schema(min_items = 1))]
    descriptors: Vec<DescriptorBody>,
    /// Hits for each descriptor that has none of its own; 1 if left out.
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<u32>,
}

/// Descriptor that a limit may match.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitDescriptor))]
struct DescriptorBody {
    #[serde(deserialize_with = "body::objects")]
    entries: Vec<EntryBody>,
    /// Hits of this descriptor.
    #[serde(alias = "hitsAddend")]
    hits_addend: Option<u64>,
}

/// A key and a value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitEntry))]
struct EntryBody {
    key: String,
    /// Empty if left out.
    #[serde(default)]
    value: String,
}

/// Decision that the request would get now. Nothing was charged.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitAnswer))]
pub(crate) struct CheckAnswer<'a> {
    /// The answer to the request as a whole.
    code: &'static str,
    /// One for each descriptor, in their order.
    descriptors: Vec<DescriptorChecked<'a>>,
}

/// The answer for a descriptor.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitStatus))]
struct DescriptorChecked<'a> {
    /// Pairs of a key and a value.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>))]
    entries: Vec<(&'a str, &'a str)>,
    code: &'static str,
    /// The limit that applies; null when there is none, or it is unlimited.
    #[cfg_attr(test, schema(required))]
    limit: Option<Rate<'a>>,
    /// Hits that the window would have left; null without a limit.
    #[cfg_attr(test, schema(required))]
    remaining: Option<u32>,
    /// How long the window lasts, in whole seconds; null without a limit.
    #[cfg_attr(test, schema(required))]
    reset_ms: Option<u64>,
}

/// How much a limit allows.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct Rate<'a> {
    /// Its name in the configuration; empty when it has none.
    name: &'a str,
    /// Hits allowed in each window.
    requests_per_unit: u32,
    /// The length of a window, such as `minute`.
    unit: String,
}

/// Words of the decisions.
#[cfg(test)]
pub(crate) const CODES: [&str; 2] = [code(rate::Code::Ok), code(rate::Code::OverLimit)];

const fn code(code: rate::Code) -> &'static str {
    match code {
        rate::Code::Ok => "ok",
        rate::Code::OverLimit => "over_limit",
    }
}

impl CheckBody {
    fn resolve(self) -> rate::Request {
        let entry = |EntryBody { key, value }| rate::Entry { key, value };
        let descriptor = |DescriptorBody {
                              entries,
                              hits_addend,
                          }| rate::Descriptor {
            entries: entries.into_iter().map(entry).collect(),
            hits_addend,
            ..rate::Descriptor::default()
        };
        let descriptors = self.descriptors.into_iter().map(descriptor).collect();
        rate::Request {
            domain: self.domain,
            descriptors,
            hits_addend: self.hits_addend.unwrap_or_default(),
        }
    }
}

impl<'a> DescriptorChecked<'a> {
    fn from_status(descriptor: &'a rate::Descriptor, status: &'a rate::Status) -> Self {
        let limit = status.limit.as_ref();
        let rate = limit.map(|limit| Rate {
            name: &limit.name,
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit.name().to_ascii_lowercase(),
        });
        Self {
            entries: pairs(&descriptor.entries),
            code: code(status.code),
            limit: rate,
            remaining: limit.map(|_| status.remaining),
            reset_ms: status
                .seconds_until_reset
                .map(|seconds| u64::from(seconds) * 1_000),
        }
    }
}

pub(crate) async fn check(request: &RequestContext<'_>) -> HandlerResult {
    let check_request = super::read::<CheckBody>(request.body)?.resolve();
    let limits = &request.api.hooks.limits;
    let answer = limits
        .limiter
        .peek(&check_request, limits.now(), deadline())
        .await
        .map_err(refusal)?;
    let descriptors = check_request
        .descriptors
        .iter()
        .zip(&answer.statuses)
        .map(|(check_request, status)| DescriptorChecked::from_status(check_request, status))
        .collect();
    Ok(json::ok(&CheckAnswer {
        code: code(answer.code),
        descriptors,
    }))
}

fn refusal(error: rate::Error) -> Problem {
    match &error {
        rate::Error::EmptyDomain => Problem::field("domain", error.to_string()),
        rate::Error::NoDescriptors => Problem::field("descriptors", error.to_string()),
        rate::Error::NoConfiguration => Problem::new(Code::NoConfiguration, error.to_string()),
        rate::Error::InvalidOverride { descriptor, .. }
        | rate::Error::LongValues { descriptor } => {
            Problem::field(format!("descriptors[{descriptor}]"), error.to_string())
        }
        rate::Error::Store(error) => without_store(error),
    }
}
