//! Workers report how attempts ended, and take more jobs in the same call.

use std::time::Duration;

use axum::http::StatusCode;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_workflow::{
    Crash, Death, EngineError, Failure, JobState, Json, LeaseRef, MAX_OUTPUT, Outcome, Refusal,
    Report, Reported, RetryWish,
};
#[cfg(test)]
use utoipa::ToSchema;

use super::claims::{self, ClaimBody, ClaimRequest, ClaimedJob};
use super::leases::parse_lease;
#[cfg(test)]
use super::notes::NoteBody;
use super::notes::{self, NoteItem, Notes};
use super::waiting;
use crate::activity::Event;
use crate::edge::ask::{Answer, Ask, Context};
use crate::edge::body::{self, Span};
use crate::edge::json::ObjectText;
use crate::edge::problem::{self, Code, Problem};
use crate::edge::request_id::RequestId;
use crate::edge::words::{StateWord, StatusWord};
use crate::failures;
use crate::workers::{self, Process};

/// What is kept of a message and of a trace.
const MOST_TEXT: usize = 16 * 1024;
/// What is kept of a kind.
const MOST_KIND: usize = 200;
/// Most reports of one call.
const MOST: usize = 1_000;
/// Bytes of what is told of a report, mostly.
const USUAL_ITEM: usize = 96;

/// Reports, and what to take next.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = ReportRequest))]
pub(crate) struct ReportsBody<'a> {
    #[serde(borrow, deserialize_with = "body::objects")]
    #[cfg_attr(test, schema(max_items = 1000))]
    reports: Vec<ReportBody<'a>>,
    /// Jobs to take in the same call. It waits only when the reports make no job ready.
    #[serde(default, deserialize_with = "body::optional_object")]
    claim: Option<ClaimBody>,
    /// What to keep of jobs, of those that are reported or of others.
    #[serde(borrow, default)]
    #[cfg_attr(test, schema(max_items = 1000, value_type = Option<Vec<NoteBody>>))]
    notes: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReportsBody<'a> {
    #[serde(borrow)]
    reports: Vec<&'a RawValue>,
    #[serde(default, deserialize_with = "body::optional_object")]
    claim: Option<ClaimBody>,
    #[serde(borrow, default)]
    notes: Option<Vec<&'a RawValue>>,
}

/// How an attempt ended.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Report))]
pub(crate) struct ReportBody<'a> {
    /// The lease that the claim gave.
    lease: String,
    #[serde(deserialize_with = "body::word")]
    outcome: Word,
    /// With `succeeded`: any JSON of at most 1 MiB.
    #[serde(borrow)]
    #[cfg_attr(test, schema(value_type = Option<serde_json::Value>))]
    output: Option<&'a RawValue>,
    /// With `failed`, and then required.
    #[serde(default, deserialize_with = "body::optional_object")]
    error: Option<ErrorBody>,
    /// With `failed`: whether another attempt may follow; `policy` if left out.
    #[serde(default, deserialize_with = "body::optional_word")]
    retry: Option<RetryWord>,
    /// With `failed`: the pause before the next attempt. With `throttled`, and then required: for how long no job is handed out that has the
    /// same rate limits.
    retry_after: Option<Span>,
    /// With `given_back`: how long nobody should take it.
    pause: Option<Span>,
    /// With `crashed`, this or `exit`: the signal that ended the process.
    signal: Option<u8>,
    /// With `crashed`, this or `signal`: the code with which the process ended.
    exit: Option<i32>,
    /// With `crashed`: whether the process ran no other job; false if left out.
    alone: Option<bool>,
}

/// How an attempt ended; `not_begun` when the worker never started it: the job keeps its place in the queue, and what was taken for it under rate
/// limits is given back; `given_back` when the worker broke it off, `throttled` when whoever is behind a rate limit of the job refused it, `crashed` when
/// the process that ran it has died, as its parent reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema), schema(as = Outcome))]
enum Word {
    Succeeded,
    Failed,
    GivenBack,
    NotBegun,
    Throttled,
    Crashed,
}

/// Whether another attempt may follow: as the definition says, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema), schema(as = RetryWish))]
enum RetryWord {
    Policy,
    Never,
}

/// What went wrong.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = ReportError))]
pub(crate) struct ErrorBody {
    /// Such as the class of the error; cut to 200 bytes.
    kind: String,
    /// Cut to 16 KiB.
    message: String,
    /// Cut to 16 KiB.
    trace: Option<String>,
}

/// What became of each report, in the order of the request, and jobs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct ReportResult<'a> {
    reports: Vec<ReportItem<'a>>,
    /// What became of each note. Left out without notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<Vec<NoteItem<'a>>>,
    /// Jobs that were claimed in the same call.
    jobs: Vec<ClaimedJob<'a>>,
    /// Why no job could be claimed. The reports were taken all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim_error: Option<problem::Body<'a>>,
    /// The worker of the claim should drain: it gets no more jobs. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<bool>,
}

/// What became of one report: `job_state`, `workflow_status` and `already`, or `error`.
#[derive(Debug)]
#[cfg_attr(test, derive(ToSchema))]
struct ReportItem<'a> {
    /// The status that a single call would have got.
    status: u16,
    /// What the job is doing now.
    job_state: Option<StateWord>,
    workflow_status: Option<StatusWord>,
    /// Whether the same report came before.
    already: Option<bool>,
    error: Option<problem::Body<'a>>,
}

impl Serialize for ReportItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object =
            ObjectText::of_about(USUAL_ITEM).number("status", Some(self.status.into()));
        if let Some(state) = self.job_state {
            object = object.plain("job_state", state.text());
        }
        if let Some(status) = self.workflow_status {
            object = object.plain("workflow_status", status.text());
        }
        if let Some(already) = self.already {
            object = object.json("already", if already { "true" } else { "false" });
        }
        if let Some(error) = &self.error {
            object = object.value("error", error);
        }
        object.serialize(serializer)
    }
}

impl<'a> ReportItem<'a> {
    fn of(reported: &'a Result<Reported, Problem>, request: &'a RequestId) -> Self {
        match reported {
            Ok(Reported {
                job,
                workflow,
                already,
            }) => Self {
                status: StatusCode::OK.as_u16(),
                job_state: Some((*job).into()),
                workflow_status: Some((*workflow).into()),
                already: Some(*already),
                error: None,
            },
            Err(problem) => Self {
                status: problem.status().as_u16(),
                job_state: None,
                workflow_status: None,
                already: None,
                error: Some(problem.body(request)),
            },
        }
    }
}

impl Word {
    const fn text(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::GivenBack => "given_back",
            Self::NotBegun => "not_begun",
            Self::Throttled => "throttled",
            Self::Crashed => "crashed",
        }
    }
}

impl ReportBody<'_> {
    /// The report; the path of a problem begins at it.
    fn resolve(self) -> Result<Report, Problem> {
        let lease = parse_lease(&self.lease, "lease")?;
        self.check_fields()?;
        let outcome = match self.outcome {
            Word::Succeeded => {
                check_output(self.output)?;
                Outcome::Succeeded {
                    output: self.output.map(|output| Json::from_checked(output.get())),
                }
            }
            Word::Failed => {
                let retry = match (self.retry, self.retry_after) {
                    (Some(RetryWord::Never), Some(_)) => {
                        return Err(Problem::field(
                            "retry_after",
                            "cannot be combined with \"retry\": \"never\"",
                        ));
                    }
                    (Some(RetryWord::Never), None) => RetryWish::Never,
                    (_, Some(pause)) => RetryWish::After(pause.0),
                    _ => RetryWish::ByPolicy,
                };
                let missing = || Problem::field("error", "the outcome failed needs an error");
                Outcome::Failed {
                    failure: self.error.ok_or_else(missing)?.resolve(),
                    retry,
                }
            }
            Word::Throttled => {
                let missing =
                    || Problem::field("retry_after", "the outcome throttled needs retry_after");
                Outcome::Throttled {
                    pause: self.retry_after.ok_or_else(missing)?.0,
                }
            }
            Word::NotBegun => Outcome::NotBegun,
            Word::GivenBack => Outcome::GivenBack {
                pause: self.pause.map_or(Duration::ZERO, |pause| pause.0),
            },
            Word::Crashed => {
                let death = match (self.signal, self.exit) {
                    (Some(signal), None) => Death::Signal(signal),
                    (None, Some(code)) => Death::Exit(code),
                    (None, None) => {
                        return Err(Problem::field(
                            "signal",
                            "the outcome crashed needs signal or exit",
                        ));
                    }
                    (Some(_), Some(_)) => {
                        return Err(Problem::field("exit", "cannot be combined with signal"));
                    }
                };
                Outcome::Crashed(Crash {
                    death,
                    alone: self.alone.unwrap_or_default(),
                })
            }
        };
        Ok(Report { lease, outcome })
    }

    /// Whether each field belongs to the outcome.
    fn check_fields(&self) -> Result<(), Problem> {
        let fields = [
            (Word::Succeeded, self.output.is_some(), "output"),
            (Word::Failed, self.error.is_some(), "error"),
            (Word::Failed, self.retry.is_some(), "retry"),
            (
                Word::Failed,
                self.retry_after.is_some() && self.outcome != Word::Throttled,
                "retry_after",
            ),
            (Word::GivenBack, self.pause.is_some(), "pause"),
            (Word::Crashed, self.signal.is_some(), "signal"),
            (Word::Crashed, self.exit.is_some(), "exit"),
            (Word::Crashed, self.alone.is_some(), "alone"),
        ];
        match fields
            .into_iter()
            .find(|&(outcome, given, _)| given && outcome != self.outcome)
        {
            Some((outcome, _, field)) => Err(Problem::field(
                field,
                format!("only the outcome {} has this field", outcome.text()),
            )),
            None => Ok(()),
        }
    }
}

impl ErrorBody {
    fn resolve(self) -> Failure {
        Failure {
            kind: cut(self.kind, MOST_KIND),
            message: cut(self.message, MOST_TEXT),
            trace: self.trace.map(|trace| cut(trace, MOST_TEXT)),
        }
    }
}

/// Whether an output is small enough, and nested so that every worker can read it.
pub(crate) fn check_output(output: Option<&RawValue>) -> Result<(), Problem> {
    if output.is_some_and(|output| output.get().len() > MAX_OUTPUT) {
        let detail =
            format!("the output has more than {MAX_OUTPUT} bytes; return a reference instead");
        return Err(Problem::new(Code::PayloadTooLarge, detail).at("output"));
    }
    body::check_depth(output, "output")
}

/// The beginning of a text, at most so many bytes.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(
            (0..=most)
                .rev()
                .find(|&at| text.is_char_boundary(at))
                .unwrap_or(0),
        );
    }
    text
}

pub(crate) async fn report(ask: &Ask<'_>) -> Answer {
    let Request {
        reports: order,
        claim,
        notes,
    } = request(ask.body)?;
    let claim = claim.map(|claim| claim.resolve("claim.")).transpose()?;
    let mut valid = Vec::with_capacity(order.len());
    let order = order
        .into_iter()
        .map(|report| report.map(|report| valid.push(report)))
        .collect();
    let api = ask.api;
    let given_back = tidegate_workflow::given_back(&valid);
    let over: Vec<LeaseRef> = valid.iter().map(|report| report.lease).collect();
    let worker = claim
        .as_ref()
        .map_or_else(String::new, |request| request.claim.worker.clone());
    let started = claim
        .as_ref()
        .and_then(|request| workers::note_claim(api, &request.claim, request.uptime).started);
    let process = Process {
        worker: &worker,
        started,
    };
    if claim.is_some() {
        workers::await_drains(api).await;
    }
    let claim = claim.filter(|_| !api.roll.is_draining(&process));
    let wanted = claim
        .as_ref()
        .map(|request| (&request.claim, waiting::patience(request.wait)));
    // Before the reports, which may end their leases.
    let noted = notes::keep(ask, notes).await;
    let (reported, mut leases) = api
        .engine()
        .report_and_lease(valid, wanted, api.now())
        .await;
    if let (Ok(none), Some(ClaimRequest { claim, wait, .. })) = (&leases, &claim)
        && none.is_empty()
        && !wait.is_zero()
    {
        leases = waiting::claim(
            (api.engine(), &api.host, &api.roll),
            claim,
            &given_back,
            *wait,
            &process,
        )
        .await;
    }
    let ended = over
        .into_iter()
        .zip(&reported)
        .filter(|(_, reported)| is_over(reported))
        .map(|(lease, _)| lease);
    api.roll.note_over(ended);
    let reported = outcomes(api, order, reported);
    // The reports are told all the same when the claim failed.
    let claimed = match leases {
        Ok(leases) => claims::deliver(ask, &worker, leases).await,
        Err(error) => Err(Problem::from(error).under("claim.")),
    };
    let ((claimed, share), refused) = claimed.map_or_else(
        |problem| (Default::default(), Some(problem)),
        |got| (got, None),
    );
    let failed = reported
        .iter()
        .filter_map(|reported| reported.as_ref().err())
        .chain(&refused);
    failures::items(
        ask,
        failed.chain(
            noted
                .iter()
                .flatten()
                .filter_map(|noted| noted.as_ref().err()),
        ),
    );
    let result = ReportResult {
        reports: reported
            .iter()
            .map(|reported| ReportItem::of(reported, ask.id))
            .collect(),
        notes: NoteItem::all(&noted, ask.id),
        jobs: ClaimedJob::all(&claimed, &api.host.traces),
        claim_error: refused.as_ref().map(|problem| problem.body(ask.id)),
        drain: claims::drain(api, &process),
    };
    Ok(claims::answer(
        &result,
        share,
        USUAL_ITEM * (reported.len() + 1),
    ))
}

/// Whether the worker does not have the lease any more.
fn is_over(reported: &Result<Reported, EngineError>) -> bool {
    matches!(
        reported,
        Ok(_) | Err(EngineError::Refused(_) | EngineError::NoWorkflow { .. })
    )
}

/// What a call asks for.
struct Request {
    /// Each right or wrong for itself.
    reports: Vec<Result<Report, Problem>>,
    claim: Option<ClaimBody>,
    notes: Notes,
}

fn request(body: &[u8]) -> Result<Request, Problem> {
    let prefix = |at: usize| format!("reports[{at}].");
    if let Some(ReportsBody {
        reports,
        claim,
        notes,
    }) = body::read_correct(body)
    {
        body::check_number(reports.len(), MOST, "reports")?;
        let resolved = reports.into_iter().enumerate();
        let resolved =
            resolved.map(|(at, one)| one.resolve().map_err(|problem| problem.under(&prefix(at))));
        return Ok(Request {
            reports: resolved.collect(),
            claim,
            notes: notes::read(notes)?,
        });
    }
    // Something is wrong: the others are taken all the same, so each is read for itself.
    let RawReportsBody {
        reports,
        claim,
        notes,
    } = body::read(body)?;
    body::check_number(reports.len(), MOST, "reports")?;
    let one = |(at, raw): (usize, &RawValue)| {
        let report = body::read::<ReportBody<'_>>(raw.get().as_bytes());
        report
            .and_then(ReportBody::resolve)
            .map_err(|problem| problem.under(&prefix(at)))
    };
    Ok(Request {
        reports: reports.into_iter().enumerate().map(one).collect(),
        claim,
        notes: notes::read(notes)?,
    })
}

/// What became of each report, in the order of the request.
fn outcomes(
    api: &Context,
    order: Vec<Result<(), Problem>>,
    reported: Vec<Result<Reported, EngineError>>,
) -> Vec<Result<Reported, Problem>> {
    let mut reported = reported.into_iter();
    let outcome = |valid: Result<(), Problem>| {
        valid?;
        count(api, reported.next().expect("one answer for each report"))
    };
    order.into_iter().map(outcome).collect()
}

/// Counts what became of a report.
fn count(api: &Context, reported: Result<Reported, EngineError>) -> Result<Reported, Problem> {
    match &reported {
        Ok(Reported { already: true, .. }) => {}
        Ok(Reported { job, .. }) => api.activity.add(counted(*job), 1),
        Err(EngineError::Refused(Refusal::LeaseLost { .. })) => {
            api.activity.add(Event::LeaseLost, 1)
        }
        Err(_) => {}
    }
    reported.map_err(Problem::from)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_cannot_be_read_does_not_stop_the_others() {
        let lease = "x".to_owned();
        let check = |report: &str, path: &str| {
            let body =
                format!(r#"{{"reports":[{report},{{"lease":"{lease}","outcome":"succeeded"}}]}}"#);
            let found: Vec<Option<String>> = request(body.as_bytes())
                .unwrap()
                .reports
                .into_iter()
                .map(|report| {
                    report
                        .err()
                        .and_then(|problem| problem.path().map(str::to_owned))
                })
                .collect();
            assert_eq!(
                found,
                [Some(path.to_owned()), Some("reports[1].lease".to_owned())],
                "{report}"
            );
        };
        check(
            r#"{"lease":"x","outcome":"nonsense"}"#,
            "reports[0].outcome",
        );
        check(r#"{"lease":"x","outcome":5}"#, "reports[0].outcome");
        check(
            r#"{"lease":"x","outcome":{"failed":null}}"#,
            "reports[0].outcome",
        );
        check(
            r#"{"lease":"x","outcome":"failed","error":["k","m"]}"#,
            "reports[0].error",
        );
        check(r#"{"outcome":"failed"}"#, "reports[0].lease");
        check(r#"{"lease":5,"outcome":"failed"}"#, "reports[0].lease");
        check(
            r#"{"lease":"x","outcome":"crashed","exit":true}"#,
            "reports[0].exit",
        );
        check("5", "reports[0]");
        check(r#"["x","failed"]"#, "reports[0]");
        let many = vec![r#"{"lease":"x","outcome":"failed"}"#; MOST + 1].join(",");
        for body in [
            format!(r#"{{"reports":[{many}]}}"#),
            format!(r#"{{"reports":[5,{many}]}}"#),
        ] {
            assert_eq!(
                request(body.as_bytes()).err().map(|problem| problem.code),
                Some(Code::PayloadTooLarge)
            );
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aéb".to_owned(), 2), "a");
        assert_eq!(cut("aéb".to_owned(), 3), "aé");
        assert_eq!(cut("aéb".to_owned(), 4), "aéb");
    }
}
