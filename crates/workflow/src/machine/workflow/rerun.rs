//! Jobs that run again: jobs that an operator resets, and jobs whose rule lets them run after that.

use super::Workflow;
use crate::graph::TriggerRule;
use crate::machine::{ParentOutcome, RuleResult};
use crate::model::{JobIndex, JobState, LeaseEnd, Rerun, Timestamp};

/// The outcome of each job for its children.
pub(crate) type ParentOutcomes = Box<[Option<ParentOutcome>]>;

/// The change of a parent's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ParentChange {
    /// The parent had ended without a failure, and may run again.
    Reset,
    /// The parent had failed or was blocked, and may run again.
    ResetAfterFailure,
    /// The parent fails or is blocked, and did not before.
    Failed,
    /// The parent runs again because of its own parents.
    Reruns,
}

impl ParentChange {
    fn between(before: Option<ParentOutcome>, now: Option<ParentOutcome>) -> Option<Self> {
        let failed =
            |outcome: Option<ParentOutcome>| outcome.is_some_and(ParentOutcome::is_failure);
        match (before, now) {
            (Some(_), None) if failed(before) => Some(Self::ResetAfterFailure),
            (Some(_), None) => Some(Self::Reset),
            _ if failed(now) && !failed(before) => Some(Self::Failed),
            _ => None,
        }
    }
}

impl Workflow {
    /// The outcome of each job for its children, for a comparison after an action.
    pub(crate) fn all_outcomes(&self) -> ParentOutcomes {
        self.job_indexes()
            .map(|job| self.outcome_for_children(job))
            .collect()
    }

    /// Applies the rules of all jobs to the states of their parents. Jobs that may run become
    /// ready. Ready or scheduled jobs whose rule no longer holds wait again. Jobs that their rule
    /// skipped and no longer skips do the same.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.recount_with(|workflow, job| workflow.reapply_rule(job, now));
    }

    /// Works as [`Workflow::advance`], after an action of an operator: jobs that react to failures
    /// react again. `before` are the outcomes before the action.
    pub(crate) fn advance_since(&mut self, before: &[Option<ParentOutcome>], now: Timestamp) {
        self.advance_with(before, &[], now);
    }

    /// Ends an attempt that does not itself make the job run again.
    pub(crate) fn finish(&mut self, index: JobIndex, state: JobState, now: Timestamp) {
        match self.job(index).rerun {
            Rerun::AfterEnd => self.advance_with(&self.all_outcomes(), &[index], now),
            _ => self.end(index, state, now),
        }
    }

    /// Lets these jobs react once more, because a parent failed that was reset since they began.
    pub(super) fn rerun_reacting(&mut self, jobs: &[JobIndex], now: Timestamp) {
        let (running, mut ended): (Vec<JobIndex>, Vec<_>) = jobs
            .iter()
            .copied()
            .partition(|&job| self.job(job).state.is_running());
        for job in running {
            self.job_mut(job).rerun = Rerun::AfterEnd;
        }
        ended.retain(|&job| self.has_ended_by_itself(job));
        if !ended.is_empty() {
            self.advance_with(&self.all_outcomes(), &ended, now);
        }
    }

    /// Makes a job wait as if it had never run, for an operator. Does not change its children.
    pub(crate) fn reset(&mut self, index: JobIndex, now: Timestamp) {
        self.revoke(index, LeaseEnd::Restarted);
        self.forget_run(index, now);
    }

    /// Resets a job whose rule lets it run again after its end. The token is kept, so that a
    /// repeated report of that end gets the same answer.
    fn reset_by_rule(&mut self, index: JobIndex, now: Timestamp) {
        let job = self.job_mut(index);
        if job.token != 0 {
            job.ended_by = Some(LeaseEnd::Restarted);
        }
        self.forget_run(index, now);
    }

    fn forget_run(&mut self, index: JobIndex, now: Timestamp) {
        if self.job(index).output_bytes > 0 {
            self.drop_output(index);
        }
        let job = self.job_mut(index);
        job.attempt = 0;
        job.lost_total = 0;
        job.rerun = Rerun::No;
        job.clear_lost();
        job.started_at = None;
        job.ready_at = None;
        job.worker = None;
        self.set_state(index, JobState::Waiting, now);
    }

    /// Lets `reacting` run again, and all jobs that ran after them.
    fn advance_with(
        &mut self,
        before: &[Option<ParentOutcome>],
        reacting: &[JobIndex],
        now: Timestamp,
    ) {
        let mut reruns = vec![false; self.jobs.len()];
        for &job in reacting {
            self.reset_by_rule(job, now);
            reruns[job.index()] = true;
        }
        self.recount_with(|workflow, job| {
            workflow.rerun_if_needed(job, before, &mut reruns, now);
            workflow.reapply_rule(job, now);
        });
    }

    /// Decides whether a job that ran or runs must run again because of its parents, compared with
    /// the outcomes in `before`.
    fn rerun_if_needed(
        &mut self,
        job: JobIndex,
        before: &[Option<ParentOutcome>],
        reruns: &mut [bool],
        now: Timestamp,
    ) {
        let runs = self.job(job).state.is_running();
        if !runs && !self.has_ended_by_itself(job) {
            return;
        }
        let definition = &self.graph.jobs[job.index()];
        let changes = definition.parents.iter().filter_map(|parent| {
            if reruns[parent.index()] {
                Some(ParentChange::Reruns)
            } else {
                ParentChange::between(before[parent.index()], self.outcome_for_children(*parent))
            }
        });
        let rerun = changes
            .map(|change| Self::rerun_after(change, definition.rule, self.job(job).rerun))
            .max();
        match rerun.unwrap_or_default() {
            Rerun::AfterEnd if !runs => {
                self.reset_by_rule(job, now);
                reruns[job.index()] = true;
            }
            Rerun::No => {}
            rerun if self.job(job).rerun != Rerun::AfterEnd => self.job_mut(job).rerun = rerun,
            _ => {}
        }
    }

    /// Whether a job with this rule must run again after a change of a parent.
    fn rerun_after(change: ParentChange, rule: TriggerRule, rerun: Rerun) -> Rerun {
        match (change, rule) {
            (ParentChange::Reruns, _) => Rerun::AfterEnd,
            // The job cleans up after its parents, so it must run again after them.
            (ParentChange::ResetAfterFailure, TriggerRule::AllDone) => Rerun::AfterEnd,
            (
                ParentChange::Reset | ParentChange::ResetAfterFailure,
                TriggerRule::AllDone | TriggerRule::AnyFailed,
            ) => Rerun::AfterFailure,
            (ParentChange::Failed, _) if rerun == Rerun::AfterFailure => Rerun::AfterEnd,
            _ => Rerun::No,
        }
    }

    /// Whether a job ran to its end, and no operator chose that end.
    fn has_ended_by_itself(&self, job: JobIndex) -> bool {
        let job = self.job(job);
        matches!(job.state, JobState::Succeeded | JobState::Failed) && job.rerun != Rerun::ByHand
    }

    /// Applies the rule of a job that neither ran nor runs.
    fn reapply_rule(&mut self, index: JobIndex, now: Timestamp) {
        let job = self.job(index);
        match (job.state, self.rule_result(index)) {
            (JobState::Skipped, _) if job.rerun == Rerun::ByHand => {}
            (JobState::Waiting | JobState::Skipped, RuleResult::Run) => self.activate(index, now),
            (
                JobState::Waiting | JobState::Scheduled { .. } | JobState::Ready,
                RuleResult::Skip,
            ) => {
                self.set_state(index, JobState::Skipped, now);
            }
            (JobState::Skipped, RuleResult::Skip)
            | (JobState::Scheduled { .. } | JobState::Ready, RuleResult::Run) => {}
            (JobState::Skipped | JobState::Scheduled { .. } | JobState::Ready, _) => {
                self.set_state(index, JobState::Waiting, now);
            }
            _ => {}
        }
    }
}
