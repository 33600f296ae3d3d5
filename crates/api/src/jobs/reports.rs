//! Reports of workers about attempts, with a claim for more jobs in the same call.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_workflow::{
    EngineError, JobState, LeaseRef, LeasedBatch, Refusal, Report, ReportAnswer,
};
#[cfg(test)]
use utoipa::ToSchema;

use super::claims::{self, ClaimBody, ClaimRequest, ClaimedJob, Delivered};
#[cfg(test)]
use super::notes::NoteBody;
use super::notes::{self, NoteItem, ParsedNotes};
use super::outcome::ReportBody;
use super::waiting;
use crate::http::body;
use crate::http::enum_text::{StateWord, StatusWord};

use crate::http::problem::{self, Problem};
use crate::http::request_id::RequestId;
use crate::state::app_state::{AppState, HandlerResult, RequestContext};
use crate::state::error_log;
use crate::state::metrics::CountedEvent;
use crate::workers::{self, WorkerProcess};

/// Most reports of one call.
const MAX_REPORTS: usize = 1_000;
/// Typical bytes of the result of one report.
const TYPICAL_ITEM_BYTES: usize = 96;

/// Reports, and what to take next.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = ReportRequest))]
pub(crate) struct ReportsBody<'a> {
    #[serde(borrow, deserialize_with = "body::objects")]
    #[cfg_attr(test, schema(max_items = 1000))]
    reports: Vec<ReportBody<'a>>,
    /// Jobs to take in the same call. It waits only when the reports make no job ready.
    #[serde(default, deserialize_with = "body::optional_object")]
    claim: Option<ClaimBody>,
    /// Notes to store about jobs, of those that are reported or of others.
    #[serde(borrow, default)]
    #[cfg_attr(test, schema(max_items = 1000, value_type = Option<Vec<NoteBody>>))]
    notes: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReportsBody<'a> {
    #[serde(borrow)]
    reports: Vec<&'a RawValue>,
    #[serde(default, deserialize_with = "body::optional_object")]
    claim: Option<ClaimBody>,
    #[serde(borrow, default)]
    notes: Option<Vec<&'a RawValue>>,
}

/// Result of each report, in the order of the request, and jobs.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct ReportResult<'a> {
    reports: Vec<ReportItem<'a>>,
    /// Result of each note. Left out without notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<Vec<NoteItem<'a>>>,
    /// Jobs that were claimed in the same call.
    jobs: Vec<ClaimedJob<'a>>,
    /// Why no job could be claimed. The reports were taken all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim_error: Option<problem::ProblemBody<'a>>,
    /// The worker of the claim should drain: it gets no more jobs. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    drain: Option<bool>,
}

/// Result of one report: `job_state`, `workflow_status` and `already`, or `error`.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct ReportItem<'a> {
    /// The status that a single call would have got.
    status: u16,
    /// State of the job now.
    #[serde(skip_serializing_if = "Option::is_none")]
    job_state: Option<StateWord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow_status: Option<StatusWord>,
    /// Whether the same report came before.
    #[serde(skip_serializing_if = "Option::is_none")]
    already: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<problem::ProblemBody<'a>>,
}

impl<'a> ReportItem<'a> {
    fn list_from(
        reported: &'a [Result<ReportAnswer, Problem>],
        request: &'a RequestContext<'_>,
    ) -> Vec<Self> {
        let items = reported.iter();
        items
            .map(|reported| Self::from_result(reported, request.id))
            .collect()
    }

    fn from_result(reported: &'a Result<ReportAnswer, Problem>, request_id: &'a RequestId) -> Self {
        let answer = reported.as_ref().ok();
        Self {
            status: problem::item_status(reported),
            job_state: answer.map(|answer| answer.job.into()),
            workflow_status: answer.map(|answer| answer.workflow.into()),
            already: answer.map(|answer| answer.already),
            error: problem::item_error(reported, request_id),
        }
    }
}

pub(crate) async fn report(request: &RequestContext<'_>) -> HandlerResult {
    let ParsedReports {
        reports,
        claim,
        notes,
    } = parse_request(request.body)?;
    let claim = claim.map(|claim| claim.resolve("claim.")).transpose()?;
    let api = request.api;
    let process = process(api, claim.as_ref());
    if claim.is_some() {
        workers::await_drains(api).await;
    }
    let granted_claim = claim
        .as_ref()
        .filter(|_| !api.worker_registry.is_draining(&process));
    // Notes are stored before the reports, which may end their leases.
    let noted = notes::add_notes(request, notes).await;
    let (valid, checks) = problem::split_valid(reports);
    let (reported, leases) = report_and_claim(api, valid, granted_claim, &process).await;
    reported.iter().for_each(|reported| count(api, reported));
    let reported = problem::merge_results(checks, reported);
    // The results of the reports are returned even if the claim failed.
    let claimed = match leases {
        Ok(leases) => claims::deliver(request, process.worker, leases).await,
        Err(error) => Err(Problem::from(error).under_prefix("claim.")),
    };
    let (delivered, refused) = match claimed {
        Ok(delivered) => (delivered, None),
        Err(problem) => (Delivered::default(), Some(problem)),
    };
    let failed = problem::problems(&reported).chain(&refused);
    error_log::log_item_problems(request, failed.chain(notes::problems(&noted)));
    let result = ReportResult {
        reports: ReportItem::list_from(&reported, request),
        notes: NoteItem::list_from(&noted, request.id),
        jobs: ClaimedJob::list_from(&delivered.jobs, &api.hooks.traces),
        claim_error: refused.as_ref().map(|problem| problem.body(request.id)),
        drain: claims::drain(api, &process),
    };
    let others = TYPICAL_ITEM_BYTES * (reported.len() + 1);
    Ok(claims::answer(&result, delivered.guard, others))
}

/// Returns the process that reports, as far as its claim names it.
fn process<'a>(api: &AppState, claim: Option<&'a ClaimRequest>) -> WorkerProcess<'a> {
    match claim {
        Some(request) => workers::record_claim(api, &request.claim, request.uptime),
        None => WorkerProcess {
            worker: "",
            started: None,
        },
    }
}

/// Reports, and claims jobs in the same call to the engine. It waits for jobs if there are none.
async fn report_and_claim(
    api: &AppState,
    reports: Vec<Report>,
    claim_request: Option<&ClaimRequest>,
    process: &WorkerProcess<'_>,
) -> (
    Vec<Result<ReportAnswer, EngineError>>,
    Result<LeasedBatch, EngineError>,
) {
    let given_back = tidegate_workflow::given_back(&reports);
    let leases: Vec<LeaseRef> = reports.iter().map(|report| report.lease).collect();
    let claim = claim_request.map(|request| (&request.claim, waiting::claim_mode(request.wait)));
    let (reported, mut claimed) = api
        .engine()
        .report_and_lease(reports, claim, api.now())
        .await;
    if let (Ok(batch), Some(ClaimRequest { claim, wait, .. })) = (&claimed, claim_request)
        && batch.is_empty()
        && !wait.is_zero()
    {
        claimed = waiting::claim(api, claim, &given_back, *wait, process).await;
    }
    let ended = leases
        .into_iter()
        .zip(&reported)
        .filter(|(_, reported)| is_over(reported))
        .map(|(lease, _)| lease);
    api.worker_registry.record_ended(ended);
    (reported, claimed)
}

/// Whether the worker does not hold the lease any more.
fn is_over(reported: &Result<ReportAnswer, EngineError>) -> bool {
    matches!(
        reported,
        Ok(_) | Err(EngineError::Refused(_) | EngineError::NoWorkflow { .. })
    )
}

/// Parsed body of the call.
struct ParsedReports {
    /// Each report is valid or not by itself.
    reports: Vec<Result<Report, Problem>>,
    claim: Option<ClaimBody>,
    notes: ParsedNotes,
}

fn parse_request(body: &[u8]) -> Result<ParsedReports, Problem> {
    let Some(ReportsBody {
        reports,
        claim,
        notes,
    }) = body::read_correct(body)
    else {
        return parse_each(body);
    };
    body::check_number(reports.len(), MAX_REPORTS, "reports")?;
    let reports = reports.into_iter().map(ReportBody::resolve);
    Ok(ParsedReports {
        reports: with_prefix(reports),
        claim,
        notes: notes::parse(notes)?,
    })
}

/// Parses a body of which an item is wrong. The others are accepted nevertheless, so each is parsed
/// by itself.
fn parse_each(body: &[u8]) -> Result<ParsedReports, Problem> {
    let RawReportsBody {
        reports,
        claim,
        notes,
    } = body::read(body)?;
    body::check_number(reports.len(), MAX_REPORTS, "reports")?;
    let reports = reports.into_iter().map(|raw| {
        let report = body::read::<ReportBody<'_>>(raw.get().as_bytes());
        report.and_then(ReportBody::resolve)
    });
    Ok(ParsedReports {
        reports: with_prefix(reports),
        claim,
        notes: notes::parse(notes)?,
    })
}

/// Adds the place of each report to the path of its problem.
fn with_prefix(
    reports: impl Iterator<Item = Result<Report, Problem>>,
) -> Vec<Result<Report, Problem>> {
    let at_place = |(at, report): (usize, Result<_, Problem>)| {
        report.map_err(|problem| problem.under_prefix(&format!("reports[{at}].")))
    };
    reports.enumerate().map(at_place).collect()
}

/// Counts the result of a report.
fn count(api: &AppState, reported: &Result<ReportAnswer, EngineError>) {
    match reported {
        Ok(ReportAnswer { already: true, .. }) => {}
        Ok(ReportAnswer { job, .. }) => api.metrics.add(event_for(*job), 1),
        Err(EngineError::Refused(Refusal::LeaseLost { .. })) => {
            api.metrics.add(CountedEvent::LeaseLost, 1)
        }
        Err(_) => {}
    }
}

/// Returns the event that an accepted report counts as, by the state of the job after it.
const fn event_for(state: JobState) -> CountedEvent {
    match state {
        JobState::Succeeded => CountedEvent::Succeeded,
        JobState::Failed => CountedEvent::Failed,
        // Another attempt will follow.
        _ => CountedEvent::TriedAgain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::problem::Code;

    #[test]
    fn a_report_that_cannot_be_read_does_not_stop_the_others() {
        let lease = "x".to_owned();
        let check = |report: &str, path: &str| {
            let body =
                format!(r#"{{"reports":[{report},{{"lease":"{lease}","outcome":"succeeded"}}]}}"#);
            let found: Vec<Option<String>> = parse_request(body.as_bytes())
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
        let many = vec![r#"{"lease":"x","outcome":"failed"}"#; MAX_REPORTS + 1].join(",");
        for body in [
            format!(r#"{{"reports":[{many}]}}"#),
            format!(r#"{{"reports":[5,{many}]}}"#),
        ] {
            assert_eq!(
                parse_request(body.as_bytes())
                    .err()
                    .map(|problem| problem.code),
                Some(Code::PayloadTooLarge)
            );
        }
    }
}
