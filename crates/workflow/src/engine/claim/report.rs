//! Reports of workers: outcomes of attempts, and extensions of leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hashbrown::HashSet;

use super::Claim;
use super::leases::LeasedBatch;
use crate::engine::Engine;
use crate::engine::actor::answer::{Answer, LeasedJob};
use crate::engine::actor::request::{ClaimOnReport, Request};
use crate::engine::context::error::EngineError;
use crate::machine::{Intent, Outcome};
use crate::model::{JobState, LeaseRef, Status, Timestamp, WorkflowId};
use crate::queue::{ClaimMode, ExcludedJobs};
use crate::store::PermitExtension;

/// Outcome of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The lease of the job.
    pub lease: LeaseRef,
    /// Outcome of the attempt.
    pub outcome: Outcome,
}

/// The answer to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportAnswer {
    /// State of the job now.
    pub job: JobState,
    /// Status of the workflow now.
    pub workflow: Status,
    /// Whether an equal report was accepted before.
    pub already: bool,
}

/// A lease to extend, and its new end.
pub type Extension = (LeaseRef, Timestamp);

impl ReportAnswer {
    fn from_answer(answer: &Answer) -> Self {
        Self {
            job: answer.state.expect("a report answers with the job's state"),
            workflow: answer.status.expect("a report answers with the status"),
            already: answer.already_done,
        }
    }
}

impl ClaimOnReport {
    /// The claim that a worker makes with its reports.
    fn for_reports(claim: &Claim, reports: &[Report]) -> Self {
        Self {
            reported: reports.iter().map(|report| report.lease).collect(),
            excluded: ExcludedJobs::from_leases(&given_back(reports)),
            queues: claim.queues.clone(),
            handlers: claim.handlers.clone(),
            worker: claim.worker.as_str().into(),
            lease: claim.lease,
            remaining: AtomicUsize::new(claim.limit),
        }
    }
}

/// Returns the leases of jobs that a worker returned without a pause: it wants other jobs. A job
/// that was returned with a pause may be leased to the same worker after it.
#[must_use]
pub fn given_back(reports: &[Report]) -> Vec<LeaseRef> {
    let given_back = |report: &&Report| match report.outcome {
        Outcome::Returned { pause } => pause.is_zero(),
        Outcome::NotBegun => true,
        Outcome::Succeeded { .. }
        | Outcome::Failed { .. }
        | Outcome::Throttled { .. }
        | Outcome::Crashed(_) => false,
    };
    reports
        .iter()
        .filter(given_back)
        .map(|report| report.lease)
        .collect()
}

impl Engine {
    /// Applies reports, independently of each other, and leases more jobs to the worker: first
    /// those that its reports made ready, which do not enter the queue, then others. Jobs that the
    /// worker returned are excluded. [`Engine::deliver`] reads the inputs of the jobs.
    ///
    /// # Cancellation
    /// When the future is dropped, reports may have been accepted. Leased jobs are returned to
    /// their queues at once.
    pub async fn report_and_lease(
        &self,
        mut reports: Vec<Report>,
        next_claim: Option<(&Claim, ClaimMode)>,
        now: Timestamp,
    ) -> (
        Vec<Result<ReportAnswer, EngineError>>,
        Result<LeasedBatch, EngineError>,
    ) {
        let throttled = self.throttled(&mut reports).await;
        let reported_leases: Vec<LeaseRef> = reports.iter().map(|report| report.lease).collect();
        let claim_on_report =
            next_claim.map(|(claim, _)| Arc::new(ClaimOnReport::for_reports(claim, &reports)));
        let mut leased = Vec::new();
        let reported = self
            .send_reports(reports, claim_on_report.as_ref(), &mut leased, now)
            .await;
        for throttled in throttled {
            let accepted = reported_leases
                .iter()
                .zip(&reported)
                .any(|(lease, reported)| *lease == throttled.lease && reported.is_ok());
            if accepted {
                self.throttle(throttled).await;
            }
        }
        let leases = self
            .claim_after_reports(leased, next_claim.zip(claim_on_report), now)
            .await;
        (reported, leases)
    }

    /// Applies reports. Jobs that they make ready and that `claim` leases are added to `leased`.
    async fn send_reports(
        &self,
        reports: Vec<Report>,
        claim: Option<&Arc<ClaimOnReport>>,
        leased: &mut Vec<(WorkflowId, LeasedJob)>,
        now: Timestamp,
    ) -> Vec<Result<ReportAnswer, EngineError>> {
        let leases: Vec<(LeaseRef, bool)> = reports
            .iter()
            .map(|report| (report.lease, report.outcome == Outcome::NotBegun))
            .collect();
        let answers = self.request_all(report_requests(reports, claim), now).await;
        let resolve = |((lease, not_begun), answer): ((LeaseRef, bool), Result<Answer, _>)| {
            let answer = answer.map(|mut answer| {
                leased.extend(answer.leased.drain(..).map(|job| (lease.workflow, job)));
                ReportAnswer::from_answer(&answer)
            });
            self.resolve_charge(lease, not_begun, answer.as_ref());
            answer
        };
        leases.into_iter().zip(answers).map(resolve).collect()
    }

    /// Returns the jobs that the reports made ready, and others up to the limit of the claim.
    async fn claim_after_reports(
        &self,
        leased: Vec<(WorkflowId, LeasedJob)>,
        next_claim: Option<((&Claim, ClaimMode), Arc<ClaimOnReport>)>,
        now: Timestamp,
    ) -> Result<LeasedBatch, EngineError> {
        let Some(((claim, mode), claim_on_report)) = next_claim else {
            return Ok(LeasedBatch::default());
        };
        let mut leases = LeasedBatch::from_leased(leased);
        let limit = claim_on_report.remaining.load(Relaxed);
        if limit > 0 && !leases.is_full() {
            match self
                .claim_jobs(
                    &Claim {
                        limit,
                        ..claim.clone()
                    },
                    &claim_on_report.excluded,
                    mode,
                    now,
                )
                .await
            {
                Ok(others) => leases.add(others),
                Err(error) if leases.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(leases)
    }

    /// Extends leases, independently of each other.
    pub async fn extend_for(
        &self,
        extensions: Vec<Extension>,
        intent: Intent,
        now: Timestamp,
    ) -> Vec<Result<(), EngineError>> {
        // A permit of a limit must not expire before its lease does.
        let permits = self.extend_permits(&extensions, now).await;
        let known = extensions
            .iter()
            .zip(&permits)
            .filter_map(|(extension, permit)| Some((extension, permit.as_ref().ok()?)));
        let requests = known.map(|(&(lease, expires), permit)| {
            let LeaseRef {
                workflow,
                job,
                token,
            } = lease;
            // A worker that has lost a permit has lost the lease before it. The actor refuses the
            // extension and gives the reason.
            let expires = if *permit == PermitExtension::Expired {
                now
            } else {
                expires
            };
            (
                workflow,
                Request::Extend {
                    job,
                    token,
                    expires,
                    intent,
                },
            )
        });
        let mut answers = self.request_all(requests.collect(), now).await.into_iter();
        let answer = |permit: Result<PermitExtension, EngineError>| {
            permit?;
            answers
                .next()
                .expect("each of the others was asked for")
                .map(|_| ())
        };
        permits.into_iter().map(answer).collect()
    }
}

/// Returns the requests of reports. Jobs that a report makes ready are leased with `claim`.
fn report_requests(
    reports: Vec<Report>,
    claim: Option<&Arc<ClaimOnReport>>,
) -> Vec<(WorkflowId, Request)> {
    let mut seen = HashSet::new();
    let request = |Report { lease, outcome }| {
        let request = Request::Report {
            job: lease.job,
            token: lease.token,
            outcome,
            // Such jobs are leased once, even if the call has the report twice.
            claim: claim.filter(|_| seen.insert(lease)).cloned(),
        };
        (lease.workflow, request)
    };
    reports.into_iter().map(request).collect()
}
