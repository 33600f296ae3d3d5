//! Jobs that wait under limits, the use of these limits, and their holders.

use std::fmt::Write as _;
use std::num::NonZeroU32;

use serde::Serialize;
use tidegate_ratelimit::{Configuration, Entry, LimitOverride, Overrides, Units, Usage};
use tidegate_workflow::{HolderList, Limit, PartialResult, WaitingKey};
#[cfg(test)]
use utoipa::ToSchema;

use super::overrides::OverrideShown;
use super::truncate;
use crate::http::json;
use crate::http::query::Query;
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext, with_read_timeout};
use crate::state::rate_limits::{deadline, pause_of};
use crate::views::incomplete::Incomplete;
use crate::views::why::Holder;
use crate::views::workflow_limits::LimitShown;

/// Most keys of a page.
const MAX_KEYS: usize = 100;

/// A page of keys that jobs wait under, by queue and handler.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct WaitingKeyPage<'a> {
    items: Vec<WaitingKeyShown<'a>>,
    /// The cursor of the next page; null when this is the last. There may be a next page after one that is not full.
    #[cfg_attr(test, schema(required))]
    next_cursor: Option<String>,
    /// Data that is missing, when a part of the store does not answer. Left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
}

/// Ready jobs of one queue and one handler that have the same limits.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = WaitingKey))]
struct WaitingKeyShown<'a> {
    queue: &'a str,
    handler: &'a str,
    /// How many they are. Where they have room, they wait for a worker.
    waiting: u64,
    /// Since when the oldest of them has waited.
    #[cfg_attr(test, schema(required))]
    oldest_ready_at: Option<Rfc3339>,
    limits: Vec<LimitInUse>,
    /// The first of the limits that has no room for a job; null when all have.
    #[cfg_attr(test, schema(required))]
    full: Option<FullLimit<'a>>,
}

/// A limit that has no room.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct FullLimit<'a> {
    /// Its place among the limits, from 0.
    index: usize,
    /// For a rate limit: until then at least. For a limit of concurrency: until then at the latest, when no lease is extended.
    until: Rfc3339,
    /// The override that pauses it. Left out when it is not paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<OverrideShown<'a>>,
}

/// A limit, and how much of it is used.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct LimitInUse {
    #[serde(flatten)]
    limit: LimitShown,
    /// Of a rate limit: its path in the configuration. Left out when the configuration has no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    /// Of a rate limit: what its window has used; left out when the configuration has no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#use: Option<WindowUse>,
    /// Of a limit of concurrency: how many jobs run under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<u32>,
    /// Those that lose their places first: at most 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<Holder>>,
}

/// Use of the window of a rate limit.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct WindowUse {
    /// Hits that are counted: with requests that were refused, more than the limit allows.
    used: u64,
    /// Hits that the limit allows in each window.
    requests_per_unit: u32,
    /// The length of a window, such as `minute`.
    unit: String,
    /// When the window ends.
    resets_at: Rfc3339,
}

pub(crate) async fn list(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let limit = query.limit(20, MAX_KEYS)?;
    let queue = query.remove("queue");
    let after = query.cursor("a page of limits", decode_cursor)?;
    query.finish()?;
    let read =
        request
            .engine()
            .waiting_keys(queue.as_deref(), after.as_deref(), limit, request.now());
    let PartialResult { found, missing } = with_read_timeout(read).await?;
    let overrides = request.api.hooks.limits.limiter.overrides();
    let items = show_keys(request, &found.keys, &overrides).await;
    let next_cursor = found.next.map(|next| encode_cursor(&next));
    Ok(json::ok(&WaitingKeyPage {
        items,
        next_cursor,
        incomplete: Incomplete::from_missing(&missing),
    }))
}

async fn show_keys<'a>(
    request: &RequestContext<'_>,
    keys: &'a [WaitingKey],
    overrides: &'a Overrides,
) -> Vec<WaitingKeyShown<'a>> {
    let mut rate_limits = rate_limits(request, keys, overrides).await.into_iter();
    let mut shown = |key: &'a WaitingKey| {
        let limits = key.limits.as_slice();
        let mut pauses = Vec::with_capacity(limits.len());
        let in_use = |(limit, holders): (&Limit, &Option<HolderList>)| {
            let found = match limit {
                Limit::Units { .. } => rate_limits.next().unwrap_or_default(),
                Limit::Concurrency { .. } => RateLimitFound::default(),
            };
            pauses.push(found.paused);
            LimitInUse {
                limit: LimitShown::from_definition(limit.definition()),
                rule: found.rule,
                r#use: found.window_use,
                running: holders.as_ref().map(|list| list.number),
                holders: holders
                    .as_ref()
                    .map(|list| list.first.iter().map(Holder::from_holding).collect()),
            }
        };
        let in_use = limits.iter().zip(&key.status.holders).map(in_use).collect();
        WaitingKeyShown {
            queue: &key.queue,
            handler: &key.handler,
            waiting: key.waiting,
            oldest_ready_at: key.oldest.map(Rfc3339),
            limits: in_use,
            full: FullLimit::find(key, &pauses),
        }
    };
    keys.iter().map(&mut shown).collect()
}

impl<'a> FullLimit<'a> {
    /// Returns the exhausted limit of a key, if it has one. `pauses` has one entry for each limit.
    fn find(key: &WaitingKey, pauses: &[Option<&'a LimitOverride>]) -> Option<Self> {
        let full = key.status.exhausted.as_ref()?;
        let mut limits = key.limits.as_slice().iter();
        let index = limits.position(|limit| *limit == full.limit)?;
        let paused = pauses.get(index).copied().flatten();
        Some(Self {
            index,
            until: Rfc3339(full.until),
            paused: paused.map(OverrideShown::from_override),
        })
    }
}

/// The rule, the pause and the use of a rate limit.
#[derive(Default)]
struct RateLimitFound<'a> {
    rule: Option<String>,
    paused: Option<&'a LimitOverride>,
    /// `None` if the counters cannot be read: the rest is shown nevertheless.
    window_use: Option<WindowUse>,
}

/// Looks up each rate limit of the keys, in their order.
async fn rate_limits<'a>(
    request: &RequestContext<'_>,
    keys: &[WaitingKey],
    overrides: &'a Overrides,
) -> Vec<RateLimitFound<'a>> {
    let all: Vec<(&str, Vec<Entry>)> = keys
        .iter()
        .flat_map(|key| key.limits.as_slice())
        .filter_map(|limit| match limit {
            Limit::Units {
                domain, entries, ..
            } => Some((&**domain, entries)),
            Limit::Concurrency { .. } => None,
        })
        .map(|(domain, entries)| {
            let entry = |(key, value): &(String, String)| Entry {
                key: key.clone(),
                value: value.clone(),
            };
            (domain, entries.iter().map(entry).collect())
        })
        .collect();
    let units: Vec<Units<'_>> = all
        .iter()
        .map(|(domain, entries)| Units {
            domain,
            entries,
            hits: NonZeroU32::MIN,
        })
        .collect();
    let limits = &request.api.hooks.limits;
    let now = limits.now();
    let usage = limits.limiter.usage(&units, now, deadline()).await;
    let mut usage = usage.unwrap_or_default().into_iter();
    let configuration = limits.limiter.configuration();
    let mut lookup = configuration.as_deref().map(Configuration::lookup);
    let found = |key: &Units<'_>| {
        let lookup = lookup.as_mut();
        let found = lookup.and_then(|lookup| lookup.find(key.domain, key.entries));
        let limit = found.map(|found| found.limit);
        RateLimitFound {
            rule: limit.map(|limit| truncate(&limit.stats_key).to_owned()),
            paused: pause_of(overrides, limit, key, now),
            window_use: usage.next().flatten().map(WindowUse::from),
        }
    };
    units.iter().map(found).collect()
}

impl From<Usage> for WindowUse {
    fn from(usage: Usage) -> Self {
        Self {
            used: usage.used,
            requests_per_unit: usage.requests_per_unit,
            unit: usage.unit.name().to_ascii_lowercase(),
            resets_at: usage.ends_at.into(),
        }
    }
}

/// Encodes a cursor as text.
fn encode_cursor(cursor: &[u8]) -> String {
    cursor
        .iter()
        .fold(String::with_capacity(2 * cursor.len()), |mut text, byte| {
            let _infallible = write!(text, "{byte:02x}");
            text
        })
}

fn decode_cursor(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    bytes.chunks_exact(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_others_are_refused() {
        let cursor = b"queue\0handler\x01[[1,\"all\"]]\0";
        assert_eq!(
            decode_cursor(&encode_cursor(cursor)).as_deref(),
            Some(&cursor[..])
        );
        for wrong in ["0", "0g", "é0", "+1"] {
            assert_eq!(decode_cursor(wrong), None, "{wrong}");
        }
    }
}
