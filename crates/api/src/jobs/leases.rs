//! Extension of the leases of workers.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_workflow::{Intent, LeaseRef, Timestamp};
#[cfg(test)]
use utoipa::ToSchema;

use super::claims;
#[cfg(test)]
use super::notes::NoteBody;
use super::notes::{self, NoteItem, Notes};
use crate::error_log;
use crate::http::body::{self, Span};
use crate::http::json;
use crate::http::problem::{self, Code, Problem};
use crate::http::request::{Answer, RequestContext};
use crate::http::request_id::RequestId;
use crate::http::time::Rfc3339;
use crate::metrics::Event;

/// Most leases of one call.
const MOST: usize = 1_000;

/// Leases to keep for longer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Extend))]
pub(crate) struct ExtendBody<'a> {
    #[cfg_attr(test, schema(max_items = 1000))]
    leases: Vec<String>,
    /// How long from now on: 5s to 1h, 30s if left out.
    lease: Option<Span>,
    /// Name of the worker, as in its claims: then the answer says whether it should drain.
    worker: Option<String>,
    /// The worker stops: a lease that ends without its report counts as returned, and not as lost.
    /// False if left out.
    stopping: Option<bool>,
    /// How long the worker has run, as in its claims.
    uptime: Option<Span>,
    /// Notes to store about jobs, of these leases or of others.
    #[serde(borrow, default)]
    #[cfg_attr(test, schema(max_items = 1000, value_type = Option<Vec<NoteBody>>))]
    notes: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExtendBody<'a> {
    #[serde(borrow)]
    leases: Vec<&'a RawValue>,
    lease: Option<Span>,
    worker: Option<String>,
    stopping: Option<bool>,
    uptime: Option<Span>,
    #[serde(borrow, default)]
    notes: Option<Vec<&'a RawValue>>,
}

/// Result of each lease, in the order of the request.
#[derive(Debug, Serialize)]
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
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct LeaseItem<'a> {
    /// The status that a single call would have got.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_at: Option<Rfc3339>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::Body<'a>>,
}

impl<'a> LeaseItem<'a> {
    fn of(extended: &'a Result<(), Problem>, expires: Timestamp, request: &'a RequestId) -> Self {
        match extended {
            Ok(()) => Self {
                status: StatusCode::OK.as_u16(),
                lease_expires_at: Some(Rfc3339(expires)),
                error: None,
            },
            Err(problem) => Self {
                status: problem.status().as_u16(),
                lease_expires_at: None,
                error: Some(problem.body(request)),
            },
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
struct Request {
    /// Each lease is valid or not by itself.
    leases: Vec<Result<LeaseRef, Problem>>,
    lease: Option<Span>,
    worker: Option<String>,
    intent: Intent,
    uptime: Option<Span>,
    notes: Notes,
}

fn request(body: &[u8]) -> Result<Request, Problem> {
    let path = |at: usize| format!("leases[{at}]");
    let intent = |stopping: Option<bool>| {
        if stopping.unwrap_or_default() {
            Intent::Stop
        } else {
            Intent::GoOn
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
        body::check_number(leases.len(), MOST, "leases")?;
        let leases = leases
            .iter()
            .enumerate()
            .map(|(at, text)| parse_lease(text, &path(at)))
            .collect();
        return Ok(Request {
            leases,
            lease,
            worker,
            intent: intent(stopping),
            uptime,
            notes: notes::read(notes)?,
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
    body::check_number(leases.len(), MOST, "leases")?;
    let one = |(at, raw): (usize, &RawValue)| {
        // A value that is no text is no lease either.
        parse_lease(
            &serde_json::from_str::<String>(raw.get()).unwrap_or_default(),
            &path(at),
        )
    };
    let leases = leases.into_iter().enumerate().map(one).collect();
    Ok(Request {
        leases,
        lease,
        worker,
        intent: intent(stopping),
        uptime,
        notes: notes::read(notes)?,
    })
}

pub(crate) async fn extend(ask: &RequestContext<'_>) -> Answer {
    let Request {
        leases: parsed,
        lease,
        worker,
        intent,
        uptime,
        notes,
    } = request(ask.body)?;
    let expires = ask.api.now() + claims::lease(lease, "lease")?;
    let extensions: Vec<(LeaseRef, Timestamp)> = parsed
        .iter()
        .flatten()
        .map(|lease| (*lease, expires))
        .collect();
    let asked: Vec<LeaseRef> = extensions.iter().map(|(lease, _)| *lease).collect();
    let extended = ask
        .api
        .engine()
        .extend_for(extensions, intent, ask.api.now());
    let (extended, noted) = tokio::join!(extended, notes::keep(ask, notes));
    let kept = asked
        .into_iter()
        .zip(&extended)
        .filter(|(_, extended)| extended.is_ok())
        .map(|(lease, _)| lease);
    ask.api.roll.note_extended(kept, expires, ask.api.now());
    let mut extended = extended.into_iter();
    let outcome = |parsed: Result<LeaseRef, Problem>| {
        parsed?;
        extended
            .next()
            .expect("one answer for each lease")
            .map_err(Problem::from)
    };
    let outcomes: Vec<Result<(), Problem>> = parsed.into_iter().map(outcome).collect();
    let number = |event: fn(&Result<(), Problem>) -> bool| {
        outcomes.iter().filter(|outcome| event(outcome)).count() as u64
    };
    ask.api.activity.add(Event::Extended, number(Result::is_ok));
    let is_lost = |outcome: &Result<(), Problem>| matches!(outcome, Err(problem) if problem.code == Code::LeaseLost);
    ask.api.activity.add(Event::LeaseLost, number(is_lost));
    let all = outcomes.iter().chain(noted.iter().flatten());
    error_log::items(ask, all.filter_map(|outcome| outcome.as_ref().err()));
    Ok(json::ok(&ExtendResult {
        leases: outcomes
            .iter()
            .map(|outcome| LeaseItem::of(outcome, expires, ask.id))
            .collect(),
        notes: NoteItem::all(&noted, ask.id),
        drain: worker.and_then(|worker| {
            let process =
                ask.api
                    .roll
                    .process(&worker, uptime.map(|uptime| uptime.0), ask.api.now());
            claims::drain(ask.api, &process)
        }),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_text_does_not_stop_the_other_leases() {
        let Request { leases, .. } = request(br#"{"leases":[5,"x"]}"#).unwrap();
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
