//! Check of a request against the rate limits, without charging it.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use tidegate_ratelimit as rate;
#[cfg(test)]
use utoipa::ToSchema;

use super::overrides::OverrideShown;
use super::{pairs, truncate, without_store};
use crate::http::body;
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::state::config_status::Loads;
use crate::state::rate_limits::{RateLimits, deadline, pause_of};

/// Most descriptors of a request that are answered with their rules and counters.
const MAX_EXPLAINED: usize = 64;
/// Most descriptors without a limit whose mistake is searched for.
const MAX_HINTS: usize = 8;

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
    #[serde(flatten)]
    explained: Explained<'a>,
}

/// Why a descriptor has its answer. A field is left out where there is none, and after the first 64 descriptors.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitStatusExplained))]
struct Explained<'a> {
    /// The path of its limit in the configuration, also of an unlimited one.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    /// The path of the file, or the resource, that it is written in.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    /// Its line there.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    /// Hits that its window has counted so far. With hits that were refused, they may be more than the limit allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    /// The override that pauses it: requests, when `gateway` is true, or else only jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<OverrideShown<'a>>,
    /// Why it has no limit, and what may be meant. Of the first 8 descriptors without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
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
    fn new(
        descriptor: &'a rate::Descriptor,
        status: &'a rate::Status,
        explained: Explained<'a>,
    ) -> Self {
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
            explained,
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
    let configuration = limits.limiter.configuration();
    let overrides = limits.limiter.overrides();
    let loads = (request.api.hooks.loads)();
    let explainer = Explainer {
        limits,
        configuration: configuration.as_deref(),
        overrides: &overrides,
        loads: &loads,
    };
    let explained = explainer.explain(&check_request).await;
    let explained = explained
        .into_iter()
        .chain(std::iter::repeat_with(Explained::default));
    let descriptors = check_request
        .descriptors
        .iter()
        .zip(&answer.statuses)
        .zip(explained)
        .map(|((descriptor, status), explained)| {
            DescriptorChecked::new(descriptor, status, explained)
        })
        .collect();
    Ok(json::ok(&CheckAnswer {
        code: code(answer.code),
        descriptors,
    }))
}

/// The state that answers are explained with.
struct Explainer<'a> {
    limits: &'a RateLimits,
    configuration: Option<&'a rate::Configuration>,
    overrides: &'a rate::Overrides,
    loads: &'a Loads,
}

impl<'a> Explainer<'a> {
    /// Explains the first descriptors. Their counters are read in one call of the store, and left
    /// out if that fails.
    async fn explain(&self, request: &rate::Request) -> Vec<Explained<'a>> {
        let units: Vec<rate::Units<'_>> = request
            .descriptors
            .iter()
            .take(MAX_EXPLAINED)
            .map(|descriptor| rate::Units {
                domain: &request.domain,
                entries: &descriptor.entries,
                hits: NonZeroU32::MIN,
            })
            .collect();
        let now = self.limits.now();
        let usage = self.limits.limiter.usage(&units, now, deadline()).await;
        let usage = usage
            .unwrap_or_default()
            .into_iter()
            .chain(std::iter::repeat_with(|| None));
        let mut lookup = self.configuration.map(rate::Configuration::lookup);
        let mut hints = MAX_HINTS;
        let mut all = Vec::with_capacity(units.len());
        for (key, usage) in units.iter().zip(usage) {
            let lookup = lookup.as_mut();
            let mut explained = Explained {
                used: usage.map(|usage| usage.used),
                ..Explained::default()
            };
            let found = lookup.and_then(|lookup| {
                let found = lookup.find(key.domain, key.entries);
                if found.is_none() && hints > 0 {
                    hints -= 1;
                    explained.hint = lookup.explain_missing(key.domain, key.entries);
                }
                found
            });
            if let Some(found) = found {
                explained.rule = Some(truncate(&found.limit.stats_key));
                explained.file = Some(truncate(self.loads.path_of(found.file)));
                explained.line = Some(found.line).filter(|line| *line > 0);
            }
            let rule = found.map(|found| found.limit);
            let pause = pause_of(self.overrides, rule, key, now);
            explained.paused = pause.map(OverrideShown::from_override);
            all.push(explained);
        }
        all
    }
}

fn refusal(error: rate::Error) -> Problem {
    let text = error.to_string();
    match &error {
        rate::Error::EmptyDomain => Problem::field("domain", text),
        rate::Error::NoDescriptors => Problem::field("descriptors", text),
        rate::Error::NoConfiguration => Problem::new(Code::NoConfiguration, text),
        rate::Error::InvalidOverride { descriptor, .. }
        | rate::Error::LongValues { descriptor } => {
            Problem::field(format!("descriptors[{descriptor}]"), text)
        }
        rate::Error::Store(error) => without_store(error),
    }
}
