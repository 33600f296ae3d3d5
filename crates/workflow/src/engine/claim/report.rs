//! Reports of workers: outcomes of attempts, and extensions of leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hashbrown::HashSet;

use super::Claim;
use super::claimed::Claimed;
use super::leases::LeasedBatch;
use crate::codec::lease::LeaseRef;
use crate::engine::Engine;
use crate::engine::actor::answer::{Answer, Leased};
use crate::engine::actor::request::{ClaimOnReport, Request};
use crate::engine::error::EngineError;
use crate::engine::queues::ClaimMode;
use crate::engine::queues::excluded_jobs::ExcludedJobs;
use crate::id::WorkflowId;
use crate::state::{JobState, Status};
use crate::store::permits::Extended;
use crate::time::Timestamp;
use crate::transition::event::Intent;
use crate::transition::outcome::Outcome;

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
pub struct Reported {
    /// State of the job now.
    pub job: JobState,
    /// Status of the workflow now.
    pub workflow: Status,
    /// Whether an equal report was accepted before.
    pub already: bool,
}

/// A lease to extend, and its new end.
pub type Extension = (LeaseRef, Timestamp);

impl Reported {
    fn of(answer: &Answer) -> Self {
        Self {
            job: answer.state.expect("a report answers with the job's state"),
            workflow: answer.status.expect("a report answers with the status"),
            already: answer.already,
        }
    }
}

impl ClaimOnReport {
    /// The claim that a worker makes with its reports.
    fn of(claim: &Claim, reports: &[Report]) -> Self {
        Self {
            reported: reports.iter().map(|report| report.lease).collect(),
            except: ExcludedJobs::of(&given_back(reports)),
            queues: claim.queues.clone(),
            handlers: claim.handlers.clone(),
            worker: claim.worker.as_str().into(),
            lease: claim.lease,
            left: AtomicUsize::new(claim.limit),
        }
    }
}

/// Returns the leases of jobs that a worker returned without a pause: it wants other jobs. A job
/// that was returned with a pause may be leased to the same worker after it.
#[must_use]
pub fn given_back(reports: &[Report]) -> Vec<LeaseRef> {
    let given_back = |report: &&Report| match report.outcome {
        Outcome::GivenBack { pause } => pause.is_zero(),
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
    /// worker returned are excluded.
    ///
    /// # Cancellation
    /// When the future is dropped, reports may have been accepted. Leased jobs are returned to
    /// their queues at once.
    pub async fn report(
        &self,
        reports: Vec<Report>,
        then: Option<&Claim>,
        now: Timestamp,
    ) -> (
        Vec<Result<Reported, EngineError>>,
        Result<Vec<Claimed>, EngineError>,
    ) {
        let then = then.map(|claim| (claim, ClaimMode::Immediate));
        let (reported, leases) = self.report_and_lease(reports, then, now).await;
        let claimed = match leases {
            Ok(leases) => self.deliver(leases).await,
            Err(error) => Err(error),
        };
        (reported, claimed)
    }

    /// Applies reports and leases jobs without reading their inputs: the first half of
    /// [`Engine::report`]. The other half is [`Engine::deliver`].
    pub async fn report_and_lease(
        &self,
        mut reports: Vec<Report>,
        then: Option<(&Claim, ClaimMode)>,
        now: Timestamp,
    ) -> (
        Vec<Result<Reported, EngineError>>,
        Result<LeasedBatch, EngineError>,
    ) {
        let throttled = self.throttled(&mut reports).await;
        let each: Vec<LeaseRef> = reports.iter().map(|report| report.lease).collect();
        let not_begun: Vec<bool> = reports
            .iter()
            .map(|report| report.outcome == Outcome::NotBegun)
            .collect();
        let hand_over = then.map(|(claim, _)| Arc::new(ClaimOnReport::of(claim, &reports)));
        let ids: Vec<WorkflowId> = reports.iter().map(|report| report.lease.workflow).collect();
        let mut seen = HashSet::new();
        let requests = reports.into_iter().map(|Report { lease, outcome }| {
            let LeaseRef {
                workflow,
                job,
                token,
            } = lease;
            // Jobs that a report made ready are leased once, even if the call has the report twice.
            let hand_over = hand_over.clone().filter(|_| seen.insert(lease));
            (
                workflow,
                Request::Report {
                    job,
                    token,
                    outcome,
                    hand_over,
                },
            )
        });
        let mut leased = Vec::new();
        let mut reported = Vec::with_capacity(ids.len());
        for (id, answer) in ids
            .into_iter()
            .zip(self.request_all(requests.collect(), now).await)
        {
            reported.push(answer.map(|mut answer| {
                leased.extend(answer.leased.drain(..).map(|leased| (id, leased)));
                Reported::of(&answer)
            }));
        }
        for ((lease, not_begun), reported) in each.iter().zip(not_begun).zip(&reported) {
            self.settle_charge(*lease, not_begun, reported.as_ref());
        }
        for throttled in throttled {
            let accepted = each
                .iter()
                .zip(&reported)
                .any(|(lease, reported)| *lease == throttled.lease && reported.is_ok());
            if accepted {
                self.throttle(throttled).await;
            }
        }
        let leases = self.leases_after(leased, then.zip(hand_over), now).await;
        (reported, leases)
    }

    /// Returns the jobs that the reports made ready, and others up to the limit of the claim.
    async fn leases_after(
        &self,
        leased: Vec<(WorkflowId, Leased)>,
        then: Option<((&Claim, ClaimMode), Arc<ClaimOnReport>)>,
        now: Timestamp,
    ) -> Result<LeasedBatch, EngineError> {
        let Some(((claim, patience), hand_over)) = then else {
            return Ok(LeasedBatch::default());
        };
        let mut leases = LeasedBatch::of(leased);
        let limit = hand_over.left.load(Relaxed);
        if limit > 0 && !leases.is_full() {
            match self
                .lease(
                    &Claim {
                        limit,
                        ..claim.clone()
                    },
                    &hand_over.except,
                    patience,
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

    /// Extends leases, independently of each other, of workers that continue.
    pub async fn extend(
        &self,
        extensions: Vec<Extension>,
        now: Timestamp,
    ) -> Vec<Result<(), EngineError>> {
        self.extend_for(extensions, Intent::GoOn, now).await
    }

    /// Extends leases, independently of each other.
    pub async fn extend_for(
        &self,
        extensions: Vec<Extension>,
        intent: Intent,
        now: Timestamp,
    ) -> Vec<Result<(), EngineError>> {
        // A permit of a limit must not expire before its lease does.
        let places = self.extend_places(&extensions, now).await;
        let known = extensions
            .iter()
            .zip(&places)
            .filter_map(|(extension, place)| Some((extension, place.as_ref().ok()?)));
        let requests = known.map(|(&(lease, expires), place)| {
            let LeaseRef {
                workflow,
                job,
                token,
            } = lease;
            // A worker that has lost a permit has lost the lease before it. The actor refuses the
            // extension and gives the reason.
            let expires = if *place == Extended::Gone {
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
        let answer = |place: Result<Extended, EngineError>| {
            place?;
            answers
                .next()
                .expect("each of the others was asked for")
                .map(|_| ())
        };
        places.into_iter().map(answer).collect()
    }
}
