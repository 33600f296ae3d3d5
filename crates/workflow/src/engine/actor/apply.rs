//! Applies a request to one workflow in memory.

use std::sync::Arc;

use super::answer::{Answer, Leased, Returned};
use super::assign::by_priority;
use super::cached_workflow::CachedWorkflow;
use super::ended::{Ended, may_end};
use super::event::event;
use super::request::{ClaimOnReport, Envelope, Request};
use super::undelivered::{GiveBack, UndeliveredLease};
use crate::codec::lease::LeaseRef;
use crate::engine::context::Context;
use crate::engine::error::EngineError;
use crate::id::JobIndex;
use crate::state::{Job, JobState, Status};
use crate::store::Store;
use crate::time::Timestamp;
use crate::transition::event::{Effect, Event, Lease};
use crate::transition::transition;
use crate::workflow::Workflow;

/// Applies requests to states.
pub(super) struct Player<'a> {
    pub(super) context: &'a Context,
    pub(super) store: &'a Store,
    pub(super) give_back: &'a GiveBack,
}

/// A lease that a report ends, and the worker's claim on the jobs after it.
struct Reported<'a> {
    lease: LeaseRef,
    hand_over: &'a ClaimOnReport,
}

impl Player<'_> {
    /// Applies one request.
    pub(super) fn apply(
        &self,
        entry: &mut CachedWorkflow,
        posted: &Envelope,
    ) -> Result<Answer, EngineError> {
        let request = &posted.request;
        let now = posted.now;
        if entry.workflow.is_deleted() {
            return Err(EngineError::NoWorkflow {
                workflow: entry.workflow.id,
            });
        }
        let Some(event) = event(&entry.workflow, request)? else {
            if matches!(request, Request::MendKey) {
                entry.workflow.mend_key();
            }
            return Ok(answer(&entry.workflow, None, Effect::Done));
        };
        if matches!(event, Event::Tick { .. }) {
            entry.workflow.settle_rows();
        }
        let started = request
            .job()
            .and_then(|job| entry.workflow.jobs.get(job.index())?.started_at);
        let known = entry.workflow.newly_ready().len();
        let may_end = self
            .context
            .attempts
            .as_ref()
            .map(|_| may_end(&entry.workflow, &event, now));
        let effect = transition(&mut entry.workflow, &event, self.context.retention, now)?;
        let ended = may_end.map_or_else(Vec::new, |before| {
            Ended::of(&entry.workflow, &event, before)
        });
        let leased = self.lease_jobs(entry, posted, effect, known);
        let reported = matches!(request, Request::Report { .. }) && effect == Effect::Done;
        let took = started
            .filter(|_| reported)
            .map(|started| now.since(started));
        let spared = match event {
            Event::Tick { served_since } if entry.workflow.graph.has_limits() => {
                entry.workflow.spared(served_since, now)
            }
            _ => Vec::new(),
        };
        Ok(Answer {
            leased,
            took,
            ended,
            spared,
            ..answer(&entry.workflow, request.job(), effect)
        })
    }

    /// Returns the jobs that a request leases to its caller. The first `ready_before` of the newly
    /// ready jobs were ready before the request.
    fn lease_jobs(
        &self,
        entry: &mut CachedWorkflow,
        posted: &Envelope,
        effect: Effect,
        known: usize,
    ) -> Vec<Leased> {
        let now = posted.now;
        match &posted.request {
            Request::Claim { job, lease } => {
                let claimed = LeaseRef {
                    workflow: entry.workflow.id,
                    job: *job,
                    token: lease.token,
                };
                vec![self.leased(entry, claimed, lease.expires, now)]
            }
            // A caller that has gone gets no jobs.
            Request::Report {
                job,
                token,
                hand_over: Some(hand_over),
                ..
            } if !posted.answer.is_abandoned() => {
                let reported = Reported {
                    lease: LeaseRef {
                        workflow: entry.workflow.id,
                        job: *job,
                        token: *token,
                    },
                    hand_over,
                };
                match effect {
                    Effect::Done => self.hand_over(entry, known, reported, now),
                    Effect::Already => self.hand_over_again(entry, reported, now),
                }
            }
            _ => Vec::new(),
        }
    }

    /// Leases jobs that have just become ready to the worker whose report made them ready, so that
    /// they do not enter the queue. The first `ready_before` of them were ready before.
    fn hand_over(
        &self,
        entry: &mut CachedWorkflow,
        known: usize,
        Reported { lease, hand_over }: Reported<'_>,
        now: Timestamp,
    ) -> Vec<Leased> {
        let ready = by_priority(
            &entry.workflow.graph,
            &entry.workflow.newly_ready()[known..],
        );
        let mut leased = Vec::new();
        for job in ready {
            // A job that is retried at once waits behind older jobs, so that it does not occupy its
            // worker.
            if job == lease.job || !self.may_hand_over(&entry.workflow, job, hand_over) {
                continue;
            }
            if !hand_over.take_one() {
                break;
            }
            let next = lease.successor(job);
            let expires = now + hand_over.lease;
            let event = Event::Claim {
                job,
                lease: Lease {
                    token: next.token,
                    worker: hand_over.worker.clone(),
                    expires,
                },
            };
            if transition(&mut entry.workflow, &event, self.context.retention, now).is_ok() {
                leased.push(self.leased(entry, next, expires, now));
            }
        }
        leased
    }

    /// Returns the jobs that were leased with an earlier copy of this report, whose answer was lost
    /// or is on its way. If this answer is lost, the leases stay, because the other answer may have
    /// arrived. The new fence keeps the other answer from releasing them, too.
    fn hand_over_again(
        &self,
        entry: &mut CachedWorkflow,
        Reported { lease, hand_over }: Reported<'_>,
        now: Timestamp,
    ) -> Vec<Leased> {
        let again = |(at, about): (usize, &Job)| match about.state {
            JobState::Running { expires } => {
                let again = lease.successor(JobIndex(at as u32));
                // The worker has a job that it reports in the same call.
                let wanted = about.token == again.token && !hand_over.reported.contains(&again);
                wanted.then_some((again, expires))
            }
            _ => None,
        };
        let found: Vec<_> = entry
            .workflow
            .jobs
            .iter()
            .enumerate()
            .filter_map(again)
            .collect();
        let mut leased = Vec::new();
        for (again, expires) in found.into_iter().take_while(|_| hand_over.take_one()) {
            entry.workflow.job_mut(again.job).fence += 1;
            let mut again = self.leased(entry, again, expires, now);
            again.undelivered.mark_delivered();
            leased.push(again);
        }
        leased
    }

    fn may_hand_over(&self, workflow: &Workflow, job: JobIndex, hand_over: &ClaimOnReport) -> bool {
        let about = &workflow.graph.jobs[job.index()];
        workflow.meta().status == Status::Running
            && workflow.job(job).state == JobState::Ready
            && hand_over.queues.contains(&about.queue)
            && !hand_over.except.has(workflow.id, job)
            // The permits and units of its limits must be acquired first.
            && workflow.graph.limits(job).is_none()
            && hand_over.handlers.as_ref().is_none_or(|handlers| handlers.contains(&about.handler))
            && self.context.queues.may_hand_over(&about.queue, about.priority)
    }

    /// Returns a leased job, with the data that its worker gets.
    pub(super) fn leased(
        &self,
        entry: &CachedWorkflow,
        lease: LeaseRef,
        expires: Timestamp,
        now: Timestamp,
    ) -> Leased {
        let workflow = &entry.workflow;
        let LeaseRef { job, token, .. } = lease;
        let about = &workflow.graph.jobs[job.index()];
        let output = |job| entry.outputs.get(&job).cloned();
        let inputs = about.parents.iter();
        let inputs = inputs
            .filter_map(|&job| Returned::of(workflow, about.rule, job, output(job)))
            .collect();
        let Job { attempt, fence, .. } = *workflow.job(job);
        let suspect = workflow.job(job).is_suspect();
        let graph = Arc::clone(&workflow.graph);
        let undelivered = UndeliveredLease::new(self.give_back, lease, fence, now);
        Leased {
            job,
            token,
            expires,
            attempt,
            fence,
            suspect,
            graph,
            inputs,
            undelivered,
        }
    }
}

fn answer(workflow: &Workflow, job: Option<JobIndex>, effect: Effect) -> Answer {
    Answer {
        status: Some(workflow.meta().status),
        state: job.map(|job| workflow.job(job).state),
        already: effect == Effect::Already,
        took: None,
        ended: Vec::new(),
        spared: Vec::new(),
        leased: Vec::new(),
        existing: None,
    }
}

/// A token for a lease. It is not 0, which means no lease.
pub(crate) fn new_token() -> u64 {
    fastrand::u64(1..)
}
