//! Extension of the leases of workers.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_workflow::{Intent, LeaseRef};
#[cfg(test)]
use utoipa::ToSchema;

use super::claims;
#[cfg(test)]
use super::notes::NoteBody;
use super::notes::{self, NoteItem, ParsedNotes};
use crate::http::body::{self, TimeSpan};
use crate::http::json;
use crate::http::problem::{self, Code, Problem};

use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::state::error_log;
use crate::state::metrics::CountedEvent;

/// Most leases of one call.
const MAX_LEASES: usize = 1_000;

/// Leases to keep for longer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Extend))]
pub(crate) struct ExtendBody<'a> {
    #[cfg_attr(test, schema(max_items = 1000))]
    leases: Vec<String>,
    /// How long from now on: 5s to 1h, 30s if left out.
    lease: Option<TimeSpan>,
    /// Name of the worker, as in its claims: then the answer says whether it should drain.
    worker: Option<String>,
    /// The worker stops: a lease that ends without its report counts as returned, and not as lost.
    /// False if left out.
    stopping: Option<bool>,
    /// How long the worker has run, as in its claims.
    uptime: Option<TimeSpan>,
    /// Notes to store about jobs, of these leases or of others.
    #[serde(borrow, default)]
    #[cfg_attr(test, schema(max_items = 1000, value_type = Option<Vec<NoteBody>>))]
    notes: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExtendBody<'a> {
    #[serde(borrow)]
    leases: Vec<&'a RawValue>,
    lease: Option<TimeSpan>,
    worker: Option<String>,
    stopping: Option<bool>,
    uptime: Option<TimeSpan>,
    #[serde(borrow, default)]
    notes: Option<Vec<&'a RawValue>>,
}

/// Result of each lease, in the order of the request.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct ExtendResult<'a> {
    leases: Vec<LeaseItem<'a>>,
    /// Result of each note. Left out without notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<Vec<NoteItem<'a>>>,
    /// The worker should drain: it gets no more jobs. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<bool>,
}

/// Result of one lease: `lease_expires_at`, or `error`.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct LeaseItem<'a> {
    /// The status that a single call would have got.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_at: Option<Rfc3339>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::ProblemBody<'a>>,
}

/// Parses a lease.
pub(crate) fn parse_lease(text: &str, path: &str) -> Result<LeaseRef, Problem> {
    text.parse().map_err(|_| {
        Problem::field(
            path,
            "this is not a lease; send the lease that a claim returned",
        )
    })
}

/// Parsed body of the call.
struct ParsedExtension {
    /// Each lease is valid or not by itself.
    leases: Vec<Result<LeaseRef, Problem>>,
    lease: Option<TimeSpan>,
    worker: Option<String>,
    intent: Intent,
    uptime: Option<TimeSpan>,
    notes: ParsedNotes,
}

fn parse_request(body: &[u8]) -> Result<ParsedExtension, Problem> {
    let path = |at: usize| format!("leases[{at}]");
    let intent = |stopping: Option<bool>| {
        if stopping.unwrap_or_default() {
            Intent::Stop
        } else {
            Intent::Continue
        }
    };
    if let Some(ExtendBody {
        leases,
        lease,
        worker,
        stopping,
        uptime,
        notes,
    }) = body::read_correct(body)
    {
        body::check_number(leases.len(), MAX_LEASES, "leases")?;
        let leases = leases
            .iter()
            .enumerate()
            .map(|(at, text)| parse_lease(text, &path(at)))
            .collect();
        return Ok(ParsedExtension {
            leases,
            lease,
            worker,
            intent: intent(stopping),
            uptime,
            notes: notes::parse(notes)?,
        });
    }
    // One item is wrong. The others are extended nevertheless, so each is parsed by itself.
    let RawExtendBody {
        leases,
        lease,
        worker,
        stopping,
        uptime,
        notes,
    } = body::read(body)?;
    body::check_number(leases.len(), MAX_LEASES, "leases")?;
    let parse = |(at, raw): (usize, &RawValue)| {
        // A value that is no text is no lease either.
        parse_lease(
            &serde_json::from_str::<String>(raw.get()).unwrap_or_default(),
            &path(at),
        )
    };
    let leases = leases.into_iter().enumerate().map(parse).collect();
    Ok(ParsedExtension {
        leases,
        lease,
        worker,
        intent: intent(stopping),
        uptime,
        notes: notes::parse(notes)?,
    })
}

pub(crate) async fn extend(request: &RequestContext<'_>) -> HandlerResult {
    let api = request.api;
    let ParsedExtension {
        leases: parsed,
        lease,
        worker,
        intent,
        uptime,
        notes,
    } = parse_request(request.body)?;
    let expires = api.now() + claims::lease_duration(lease, "lease")?;
    let (requested, checks) = problem::split_valid(parsed);
    let extensions = requested.iter().map(|lease| (*lease, expires)).collect();
    let extended = api.engine().extend_for(extensions, intent, api.now());
    let (extended, noted) = tokio::join!(extended, notes::add_notes(request, notes));
    let held = requested
        .into_iter()
        .zip(&extended)
        .filter(|(_, extended)| extended.is_ok())
        .map(|(lease, _)| lease);
    api.worker_registry
        .record_extended(held, expires, api.now());
    let outcomes = problem::merge_results(checks, extended);
    let number = |event: fn(&Result<(), Problem>) -> bool| {
        outcomes.iter().filter(|outcome| event(outcome)).count() as u64
    };
    api.metrics
        .add(CountedEvent::Extended, number(Result::is_ok));
    let is_lost = |outcome: &Result<(), Problem>| matches!(outcome, Err(problem) if problem.code == Code::LeaseLost);
    api.metrics.add(CountedEvent::LeaseLost, number(is_lost));
    let all = outcomes.iter().chain(noted.iter().flatten());
    error_log::log_item_problems(request, all.filter_map(|outcome| outcome.as_ref().err()));
    let item = |outcome| LeaseItem {
        status: problem::item_status(outcome),
        lease_expires_at: outcome.is_ok().then_some(Rfc3339(expires)),
        error: problem::item_error(outcome, request.id),
    };
    Ok(json::ok(&ExtendResult {
        leases: outcomes.iter().map(item).collect(),
        notes: NoteItem::list_from(&noted, request.id),
        drain: worker.and_then(|worker| {
            let process =
                api.worker_registry
                    .process(&worker, uptime.map(|uptime| uptime.0), api.now());
            claims::drain(api, &process)
        }),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_text_does_not_stop_the_other_leases() {
        let ParsedExtension { leases, .. } = parse_request(br#"{"leases":[5,"x"]}"#).unwrap();
        let paths: Vec<Option<String>> = leases
            .into_iter()
            .map(|lease| lease.err()?.path().map(str::to_owned))
            .collect();
        assert_eq!(
            paths,
            [Some("leases[0]".to_owned()), Some("leases[1]".to_owned())]
        );
    }
}
