//! Workers keep jobs for longer.

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tidegate_workflow::{LeaseRef, Timestamp};
#[cfg(test)]
use utoipa::ToSchema;

use super::claims;
use crate::activity::Event;
use crate::edge::ask::{Answer, Ask};
use crate::edge::body::{self, Span};
use crate::edge::json;
use crate::edge::problem::{self, Code, Problem};
use crate::edge::time::Rfc3339;

/// Most leases of one call.
const MOST: usize = 1_000;

/// Leases to keep for longer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Extend))]
pub(crate) struct ExtendBody {
    #[cfg_attr(test, schema(max_items = 1000))]
    leases: Vec<String>,
    /// How long from now on: 5s to 1h, 30s if left out.
    lease: Option<Span>,
}

/// What became of each lease, in the order of the request.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct ExtendResult<'a> {
    leases: Vec<LeaseItem<'a>>,
}

/// What became of one lease: `lease_expires_at`, or `error`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct LeaseItem<'a> {
    /// The HTTP status that this lease would have had alone.
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_at: Option<Rfc3339>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::Body<'a>>,
}

impl<'a> LeaseItem<'a> {
    fn of(extended: &'a Result<(), Problem>, expires: Timestamp) -> Self {
        match extended {
            Ok(()) => Self { status: StatusCode::OK.as_u16(), lease_expires_at: Some(Rfc3339(expires)), error: None },
            Err(problem) => {
                Self { status: problem.status().as_u16(), lease_expires_at: None, error: Some(problem.body(None)) }
            }
        }
    }
}

/// The lease that a text names.
pub(crate) fn parse_lease(text: &str, path: &str) -> Result<LeaseRef, Problem> {
    text.parse().map_err(|_| Problem::field(path, "this is not a lease; send the lease that a claim returned"))
}

pub(crate) async fn extend(ask: &Ask<'_>) -> Answer {
    let ExtendBody { leases, lease } = body::read(ask.body)?;
    if leases.len() > MOST {
        return Err(Problem::field("leases", format!("expected at most {MOST}")));
    }
    let expires = ask.api.now() + claims::lease(lease, "lease")?;
    let parsed: Vec<Result<LeaseRef, Problem>> =
        leases.iter().enumerate().map(|(at, text)| parse_lease(text, &format!("leases[{at}]"))).collect();
    let extensions = parsed.iter().flatten().map(|lease| (*lease, expires)).collect();
    let mut extended = ask.api.engine.extend(extensions, ask.api.now()).await.into_iter();
    let outcome = |parsed: Result<LeaseRef, Problem>| {
        parsed?;
        extended.next().expect("one answer for each lease").map_err(Problem::from)
    };
    let outcomes: Vec<Result<(), Problem>> = parsed.into_iter().map(outcome).collect();
    let number =
        |event: fn(&Result<(), Problem>) -> bool| outcomes.iter().filter(|outcome| event(outcome)).count() as u64;
    ask.api.activity.add(Event::Extended, number(Result::is_ok));
    let is_lost = |outcome: &Result<(), Problem>| matches!(outcome, Err(problem) if problem.code == Code::LeaseLost);
    ask.api.activity.add(Event::LeaseLost, number(is_lost));
    Ok(json::ok(&ExtendResult { leases: outcomes.iter().map(|outcome| LeaseItem::of(outcome, expires)).collect() }))
}
