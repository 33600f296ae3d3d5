//! Applies a request to one workflow in memory.

mod event;

use std::sync::Arc;

use self::event::event_for;
use super::answer::{Answer, LeasedJob, ParentResult};
use super::assign::by_priority;
use super::assign::undelivered_lease::{SharedLeaseReleaser, UndeliveredLease};
use super::cache::cached_workflow::CachedWorkflow;
use super::commit::ended_attempt::{EndedAttempt, possibly_ended};
use super::request::{ClaimOnReport, Envelope, Request};
use crate::engine::Context;
use crate::engine::context::error::EngineError;
use crate::machine::transition::transition;
use crate::machine::{Effect, Event, Lease, Workflow};
use crate::model::workflow_state::Job;
use crate::model::{JobIndex, JobState, LeaseRef, Status, Timestamp};
use crate::store::Store;

/// Applies requests to states.
pub(super) struct Applier<'a> {
    pub(super) context: &'a Context,
    pub(super) store: &'a Store,
    pub(super) releaser: &'a SharedLeaseReleaser,
}

/// A lease that a report ends, and the worker's claim on the jobs after it.
struct ReportedLease<'a> {
    lease: LeaseRef,
    claim: &'a ClaimOnReport,
}

impl Applier<'_> {
    /// Applies one request.
    pub(super) fn apply(
        &self,
        cached: &mut CachedWorkflow,
        envelope: &Envelope,
    ) -> Result<Answer, EngineError> {
        let request = &envelope.request;
        if cached.workflow.is_deleted() {
            return Err(EngineError::NoWorkflow {
                workflow: cached.workflow.id,
            });
        }
        let Some(event) = event_for(&cached.workflow, request)? else {
            if matches!(request, Request::RestoreKey) {
                cached.workflow.rewrite_key();
            }
            return Ok(answer(&cached.workflow, None, Effect::Done));
        };
        if matches!(event, Event::Tick { .. }) {
            cached.workflow.restore_missing_rows();
        }
        self.apply_event(cached, envelope, &event)
    }

    /// Applies the event of a request.
    fn apply_event(
        &self,
        cached: &mut CachedWorkflow,
        envelope: &Envelope,
        event: &Event,
    ) -> Result<Answer, EngineError> {
        let request = &envelope.request;
        let now = envelope.now;
        let started = reported_start(&cached.workflow, request);
        let ready_before = cached.workflow.newly_ready().len();
        let candidates = self.observed_jobs(&cached.workflow, event, now);
        let effect = transition(&mut cached.workflow, event, self.context.retention, now)?;
        Ok(Answer {
            ended: EndedAttempt::from_transition(&cached.workflow, event, candidates),
            leased: self.lease_jobs(cached, envelope, effect, ready_before),
            duration: started
                .filter(|_| effect == Effect::Done)
                .map(|started| now.since(started)),
            overdue_leases: overdue_leases(&cached.workflow, event, now),
            ..answer(&cached.workflow, request.job(), effect)
        })
    }

    /// Returns the running jobs whose attempts an event may end. Empty without an observer.
    fn observed_jobs(
        &self,
        workflow: &Workflow,
        event: &Event,
        now: Timestamp,
    ) -> Vec<(JobIndex, Job)> {
        if self.context.attempt_observer.is_none() {
            return Vec::new();
        }
        possibly_ended(workflow, event, now)
    }

    /// Returns the jobs that a request leases to its caller. The first `ready_before` of the newly
    /// ready jobs were ready before the request.
    fn lease_jobs(
        &self,
        cached: &mut CachedWorkflow,
        envelope: &Envelope,
        effect: Effect,
        ready_before: usize,
    ) -> Vec<LeasedJob> {
        let now = envelope.now;
        match &envelope.request {
            Request::Claim { job, lease } => {
                let claimed = LeaseRef {
                    workflow: cached.workflow.id,
                    job: *job,
                    token: lease.token,
                };
                vec![self.leased_job(cached, claimed, lease.expires, now)]
            }
            // A caller that has gone gets no jobs.
            Request::Report {
                job,
                token,
                claim: Some(claim),
                ..
            } if !envelope.reply.is_abandoned() => {
                let reported = ReportedLease {
                    lease: LeaseRef {
                        workflow: cached.workflow.id,
                        job: *job,
                        token: *token,
                    },
                    claim,
                };
                match effect {
                    Effect::Done => self.lease_on_report(cached, ready_before, reported, now),
                    Effect::Already => self.repeat_lease_on_report(cached, reported, now),
                }
            }
            _ => Vec::new(),
        }
    }

    /// Leases jobs that have just become ready to the worker whose report made them ready, so that
    /// they do not enter the queue. The first `ready_before` of them were ready before.
    fn lease_on_report(
        &self,
        cached: &mut CachedWorkflow,
        ready_before: usize,
        ReportedLease { lease, claim }: ReportedLease<'_>,
        now: Timestamp,
    ) -> Vec<LeasedJob> {
        let ready = by_priority(
            &cached.workflow.graph,
            &cached.workflow.newly_ready()[ready_before..],
        );
        let mut leased = Vec::new();
        for job in ready {
            // A job that is retried at once waits behind older jobs, so that it does not occupy its
            // worker.
            if job == lease.job || !self.can_lease_on_report(&cached.workflow, job, claim) {
                continue;
            }
            if !claim.reserve_one() {
                break;
            }
            let held = Lease {
                token: lease.successor(job).token,
                worker: claim.worker.clone(),
                expires: now + claim.lease,
            };
            leased.extend(self.lease(cached, job, held, now));
        }
        leased
    }

    /// Returns the jobs that were leased with an earlier copy of this report, whose answer was lost
    /// or is on its way. If this answer is lost, the leases stay, because the other answer may have
    /// arrived. The new fence keeps the other answer from releasing them, too.
    fn repeat_lease_on_report(
        &self,
        cached: &mut CachedWorkflow,
        ReportedLease { lease, claim }: ReportedLease<'_>,
        now: Timestamp,
    ) -> Vec<LeasedJob> {
        let repeated = |(index, job): (JobIndex, &Job)| match job.state {
            JobState::Running { expires } => {
                let repeated = lease.successor(index);
                // The worker has a job that it reports in the same call.
                let wanted = job.token == repeated.token && !claim.reported.contains(&repeated);
                wanted.then_some((repeated, expires))
            }
            _ => None,
        };
        let jobs = (0..).map(JobIndex).zip(&cached.workflow.jobs);
        let found: Vec<_> = jobs.filter_map(repeated).collect();
        let mut leased = Vec::new();
        for (repeated, expires) in found.into_iter().take_while(|_| claim.reserve_one()) {
            cached.workflow.job_mut(repeated.job).fence += 1;
            let mut repeated = self.leased_job(cached, repeated, expires, now);
            repeated.undelivered.mark_delivered();
            leased.push(repeated);
        }
        leased
    }

    fn can_lease_on_report(
        &self,
        workflow: &Workflow,
        job: JobIndex,
        claim: &ClaimOnReport,
    ) -> bool {
        let definition = &workflow.graph.jobs[job.index()];
        workflow.meta().status == Status::Running
            && workflow.job(job).state == JobState::Ready
            && claim.queues.contains(&definition.queue)
            && !claim.excluded.contains(workflow.id, job)
            // The permits and units of its limits must be acquired first.
            && workflow.graph.limits(job).is_none()
            && claim.handlers.as_ref().is_none_or(|handlers| handlers.contains(&definition.handler))
            && self.context.queues.may_lease_directly(&definition.queue, definition.priority)
    }

    /// Leases a ready job to a worker. `None` if the job cannot be leased.
    pub(super) fn lease(
        &self,
        cached: &mut CachedWorkflow,
        job: JobIndex,
        held: Lease,
        now: Timestamp,
    ) -> Option<LeasedJob> {
        let expires = held.expires;
        let lease = LeaseRef {
            workflow: cached.workflow.id,
            job,
            token: held.token,
        };
        let event = Event::Claim { job, lease: held };
        transition(&mut cached.workflow, &event, self.context.retention, now).ok()?;
        Some(self.leased_job(cached, lease, expires, now))
    }

    /// Returns a leased job, with the data that its worker gets.
    fn leased_job(
        &self,
        cached: &CachedWorkflow,
        lease: LeaseRef,
        expires: Timestamp,
        now: Timestamp,
    ) -> LeasedJob {
        let workflow = &cached.workflow;
        let LeaseRef { job, token, .. } = lease;
        let definition = &workflow.graph.jobs[job.index()];
        let output = |job| cached.outputs.get(&job).cloned();
        let inputs = definition.parents.iter().filter_map(|&job| {
            ParentResult::from_parent(workflow, definition.rule, job, output(job))
        });
        let Job { attempt, fence, .. } = *workflow.job(job);
        LeasedJob {
            job,
            token,
            expires,
            attempt,
            fence,
            suspect: workflow.job(job).is_suspect(),
            graph: Arc::clone(&workflow.graph),
            inputs: inputs.collect(),
            undelivered: UndeliveredLease::new(self.releaser, lease, fence, now),
        }
    }
}

/// Returns the start of the attempt that a request reports.
fn reported_start(workflow: &Workflow, request: &Request) -> Option<Timestamp> {
    match request {
        Request::Report { job, .. } => workflow.job(*job).started_at,
        _ => None,
    }
}

/// Returns the leases under limits that continue past their end after an event, and their new ends.
fn overdue_leases(
    workflow: &Workflow,
    event: &Event,
    now: Timestamp,
) -> Vec<(LeaseRef, Timestamp)> {
    match event {
        Event::Tick { served_since } if workflow.graph.has_limits() => {
            workflow.continued_leases(*served_since, now)
        }
        _ => Vec::new(),
    }
}

fn answer(workflow: &Workflow, job: Option<JobIndex>, effect: Effect) -> Answer {
    Answer {
        status: Some(workflow.meta().status),
        state: job.map(|job| workflow.job(job).state),
        already_done: effect == Effect::Already,
        ..Answer::default()
    }
}

/// A token for a lease. It is not 0, which means no lease.
pub(crate) fn new_token() -> u64 {
    fastrand::u64(1..)
}
