//! Workers say how it went, and that they need longer.

use std::time::Duration;

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_workflow::{EngineError, Failure, JobState, LeaseRef, Outcome, Refusal, Report, Reported, RetryWish};

use super::claims::{self, ClaimBody};
use crate::activity::Event;
use crate::edge::ask::{Answer, Ask, Context};
use crate::edge::body::{self, Span};
use crate::edge::json::Json;
use crate::edge::problem::{Code, Problem};
use crate::workflows::definition::json;

/// Largest output.
pub(crate) const MOST_OUTPUT: usize = 1024 * 1024;
/// What is kept of a message and of a trace.
const MOST_TEXT: usize = 16 * 1024;
/// What is kept of a kind.
const MOST_KIND: usize = 200;
/// Most reports, or leases, of one call.
const MOST: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportsBody<'a> {
    #[serde(borrow)]
    reports: Vec<ReportBody<'a>>,
    claim: Option<ClaimBody>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportBody<'a> {
    lease: String,
    outcome: Word,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    error: Option<ErrorBody>,
    retry: Option<RetryWord>,
    retry_after: Option<Span>,
    pause: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Succeeded,
    Failed,
    GivenBack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RetryWord {
    Policy,
    Never,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorBody {
    kind: String,
    message: String,
    trace: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtendBody {
    leases: Vec<String>,
    lease: Option<Span>,
}

impl ReportBody<'_> {
    /// The report; the path of a problem begins at it.
    fn resolve(self) -> Result<Report, Problem> {
        let lease = parse_lease(&self.lease, "lease")?;
        let only = |outcome: Word, given: bool, field: &str| {
            let wrong = || Problem::field(field, "it does not belong to this outcome");
            if given && self.outcome != outcome { Err(wrong()) } else { Ok(()) }
        };
        only(Word::Succeeded, self.output.is_some(), "output")?;
        only(Word::Failed, self.error.is_some(), "error")?;
        only(Word::Failed, self.retry.is_some(), "retry")?;
        only(Word::Failed, self.retry_after.is_some(), "retry_after")?;
        only(Word::GivenBack, self.pause.is_some(), "pause")?;
        let outcome = match self.outcome {
            Word::Succeeded => {
                if self.output.is_some_and(|output| output.get().len() > MOST_OUTPUT) {
                    let detail = format!("the output has more than {MOST_OUTPUT} bytes; return a reference instead");
                    return Err(Problem::new(Code::PayloadTooLarge, detail).at("output"));
                }
                body::check_depth(self.output, "output")?;
                Outcome::Succeeded { output: self.output.map(json) }
            }
            Word::Failed => {
                let Some(error) = self.error else { return Err(Problem::field("error", "a failure needs one")) };
                let retry = match (self.retry, self.retry_after) {
                    (Some(RetryWord::Never), Some(_)) => {
                        return Err(Problem::field("retry_after", "it contradicts the retry that is never wanted"));
                    }
                    (Some(RetryWord::Never), None) => RetryWish::Never,
                    (_, Some(pause)) => RetryWish::After(pause.0),
                    _ => RetryWish::ByPolicy,
                };
                let failure = Failure {
                    kind: cut(error.kind, MOST_KIND),
                    message: cut(error.message, MOST_TEXT),
                    trace: error.trace.map(|trace| cut(trace, MOST_TEXT)),
                };
                Outcome::Failed { failure, retry }
            }
            Word::GivenBack => Outcome::GivenBack { pause: self.pause.map_or(Duration::ZERO, |pause| pause.0) },
        };
        Ok(Report { lease, outcome })
    }
}

fn parse_lease(text: &str, path: &str) -> Result<LeaseRef, Problem> {
    text.parse().map_err(|_| Problem::field(path, "it is not a lease that a claim gave"))
}

/// The beginning of a text, at most so many bytes.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate((0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0));
    }
    text
}

pub(crate) async fn report(ask: &Ask<'_>) -> Answer {
    let ReportsBody { reports, claim } = body::read(ask.body)?;
    if reports.len() > MOST {
        return Err(Problem::field("reports", format!("expected at most {MOST}")));
    }
    let claim = claim.map(|claim| claim.resolve("claim.")).transpose()?;
    let mut valid = Vec::with_capacity(reports.len());
    let mut order = Vec::with_capacity(reports.len());
    for (at, report) in reports.into_iter().enumerate() {
        order.push(match report.resolve() {
            Ok(report) => {
                valid.push(report);
                None
            }
            Err(problem) => Some(problem.under(&format!("reports[{at}]."))),
        });
    }
    let api = ask.api;
    let (reported, mut claimed) = api.engine.report(valid, claim.as_ref().map(|(claim, _)| claim), api.now()).await;
    if let (Ok(none), Some((claim, wait))) = (&claimed, &claim)
        && none.is_empty()
        && !wait.is_zero()
    {
        claimed = claims::wait_for(api, claim, *wait).await;
    }
    api.activity.add(Event::Claimed, claimed.as_ref().map_or(0, Vec::len) as u64);
    let mut reported = reported.into_iter();
    let json = Json::of(|json| {
        json.key("reports").array(order, |json, refused| match refused {
            Some(problem) => problem.write_item(json),
            None => write(json, api, reported.next().expect("one answer for each report")),
        });
        match claimed {
            Ok(claimed) => json.key("jobs").array(&claimed, claims::write),
            // The reports are told all the same.
            Err(error) => {
                json.key("jobs").array([(); 0], |_, ()| {});
                Problem::from(error).write(json.key("claim_error"), None);
            }
        }
    });
    Ok(json.ok())
}

fn write(json: &mut Json, api: &Context, reported: Result<Reported, EngineError>) {
    match reported {
        Ok(Reported { job, workflow, already }) => {
            if !already {
                api.activity.add(counted(job), 1);
            }
            json.object(|json| {
                json.key("status").number(StatusCode::OK.as_u16());
                json.key("job_state").plain(job.word());
                json.key("workflow_status").plain(workflow.word());
                json.key("already").boolean(already);
            });
        }
        Err(error) => {
            if matches!(error, EngineError::Refused(Refusal::LeaseLost { .. })) {
                api.activity.add(Event::LeaseLost, 1);
            }
            Problem::from(error).write_item(json);
        }
    }
}

/// What an accepted report counts as, by what the job is doing after it.
const fn counted(state: JobState) -> Event {
    match state {
        JobState::Succeeded => Event::Succeeded,
        JobState::Failed => Event::Failed,
        // Another attempt will follow.
        _ => Event::TriedAgain,
    }
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
    let json = Json::of(|json| {
        json.key("leases").array(parsed, |json, lease| {
            let outcome =
                lease.and_then(|_| extended.next().expect("one answer for each lease").map_err(Problem::from));
            match outcome {
                Ok(()) => {
                    ask.api.activity.add(Event::Extended, 1);
                    json.object(|json| {
                        json.key("status").number(StatusCode::OK.as_u16());
                        json.key("lease_expires_at").time(expires);
                    });
                }
                Err(problem) => {
                    if problem.code == Code::LeaseLost {
                        ask.api.activity.add(Event::LeaseLost, 1);
                    }
                    problem.write_item(json);
                }
            }
        });
    });
    Ok(json.ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aéb".to_owned(), 2), "a");
        assert_eq!(cut("aéb".to_owned(), 3), "aé");
        assert_eq!(cut("aéb".to_owned(), 4), "aéb");
    }
}
