//! Extension of the leases of workers.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_workflow::{Intent, LeaseRef, Timestamp};
#[cfg(test)]
use utoipa::ToSchema;

use super::claims;
#[cfg(test)]
use super::notes::NoteBody;
use super::notes::{self, NoteItem, ParsedNotes};
use crate::http::body::{self, TimeSpan};
use crate::http::json;
use crate::http::problem::{self, Code, Problem};
use crate::http::request_id::RequestId;
use crate::http::time::Rfc3339;
use crate::state::app_state::{AppState, HandlerResult, RequestContext};
use crate::state::error_log;
use crate::state::metrics::CountedEvent;

/// Most leases of one call.
const MAX_LEASES: usize = 1_000;

/// Leases to keep for longer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Extend))]
pub(crate) struct ExtendBody<'a> {
    #[serde(borrow)]
    #[cfg_attr(test, schema(max_items = 1000, value_type = Vec<String>))]
    leases: Vec<&'a RawValue>,
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

impl<'a> LeaseItem<'a> {
    fn from_outcome(
        outcome: &'a Result<(), Problem>,
        expires: Timestamp,
        request_id: &'a RequestId,
    ) -> Self {
        Self {
            status: problem::item_status(outcome),
            lease_expires_at: outcome.is_ok().then_some(Rfc3339(expires)),
            error: problem::item_error(outcome, request_id),
        }
    }
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
    let ExtendBody {
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
        let text = serde_json::from_str::<String>(raw.get()).unwrap_or_default();
        parse_lease(&text, &format!("leases[{at}]"))
    };
    Ok(ParsedExtension {
        leases: leases.into_iter().enumerate().map(parse).collect(),
        lease,
        worker,
        intent: if stopping.unwrap_or_default() {
            Intent::Stop
        } else {
            Intent::Continue
        },
        uptime,
        notes: notes::parse(notes)?,
    })
}

pub(crate) async fn extend(request: &RequestContext<'_>) -> HandlerResult {
    let api = request.api;
    let ParsedExtension {
        leases,
        lease,
        worker,
        intent,
        uptime,
        notes,
    } = parse_request(request.body)?;
    let expires = api.now() + claims::lease_duration(lease, "lease")?;
    let (outcomes, noted) = tokio::join!(
        extend_valid(api, leases, expires, intent),
        notes::add_notes(request, notes)
    );
    let all = outcomes.iter().chain(noted.iter().flatten());
    error_log::log_item_problems(request, problem::problems(all));
    let item = |outcome| LeaseItem::from_outcome(outcome, expires, request.id);
    Ok(json::ok(&ExtendResult {
        leases: outcomes.iter().map(item).collect(),
        notes: NoteItem::list_from(&noted, request.id),
        drain: worker.and_then(|worker| drain(api, &worker, uptime)),
    }))
}

/// The leases that were extended.
fn held<T, E>(
    requested: Vec<LeaseRef>,
    extended: &[Result<T, E>],
) -> impl Iterator<Item = LeaseRef> {
    let all = requested.into_iter().zip(extended);
    all.filter_map(|(lease, extended)| extended.is_ok().then_some(lease))
}

/// Extends the leases that are valid, records and counts them. Returns the outcome of each.
async fn extend_valid(
    api: &AppState,
    leases: Vec<Result<LeaseRef, Problem>>,
    expires: Timestamp,
    intent: Intent,
) -> Vec<Result<(), Problem>> {
    let (requested, checks) = problem::split_valid(leases);
    let extensions = requested.iter().map(|lease| (*lease, expires)).collect();
    let extended = api.engine().extend_for(extensions, intent, api.now()).await;
    let held = held(requested, &extended);
    api.worker_registry
        .record_extended(held, expires, api.now());
    let outcomes = problem::merge_results(checks, extended);
    count(api, &outcomes);
    outcomes
}

/// Value of `drain` in the answer to a worker that may have reported its uptime.
fn drain(api: &AppState, worker: &str, uptime: Option<TimeSpan>) -> Option<bool> {
    let uptime = uptime.map(|uptime| uptime.0);
    let process = api.worker_registry.process(worker, uptime, api.now());
    claims::drain(api, &process)
}

/// Counts the extended and the lost leases.
fn count(api: &AppState, outcomes: &[Result<(), Problem>]) {
    let extended = outcomes.iter().flatten().count();
    api.metrics.add(CountedEvent::Extended, extended as u64);
    let lost = problem::problems(outcomes).filter(|problem| problem.code == Code::LeaseLost);
    api.metrics
        .add(CountedEvent::LeaseLost, lost.count() as u64);
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
