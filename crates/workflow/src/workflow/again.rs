//! Jobs that run again: those that an operator opens again, and those whose rule lets them run
//! after that.

use super::Workflow;
use super::reachability::{ParentOutcome, RuleResult};
use crate::graph::definition::TriggerRule;
use crate::id::JobIndex;
use crate::state::{JobState, LeaseEnd, Rerun};
use crate::time::Timestamp;

/// What the jobs after each job know of it.
pub(crate) type AllNews = Box<[Option<ParentOutcome>]>;

/// How a job before another one has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ParentChange {
    /// It had ended without a failure, and may run again.
    Opened,
    /// It had failed or was blocked, and may run again.
    OpenedAfterFailure,
    /// It fails or is blocked, and did not before.
    Failed,
    /// It runs again because of what it reacts to.
    RunsAgain,
}

impl ParentChange {
    fn between(before: Option<ParentOutcome>, now: Option<ParentOutcome>) -> Option<Self> {
        let failed = |news: Option<ParentOutcome>| news.is_some_and(ParentOutcome::is_failure);
        match (before, now) {
            (Some(_), None) if failed(before) => Some(Self::OpenedAfterFailure),
            (Some(_), None) => Some(Self::Opened),
            _ if failed(now) && !failed(before) => Some(Self::Failed),
            _ => None,
        }
    }
}

impl Workflow {
    /// What the jobs after each job know of it, to be compared with what they know after an action.
    pub(crate) fn all_news(&self) -> AllNews {
        self.each().map(|job| self.news_of(job)).collect()
    }

    /// Judges the rules of all jobs by the states of the jobs before them. Jobs that may run become
    /// ready, and jobs that are ready or scheduled although their rule no longer holds wait again.
    /// So do jobs that their rule skipped and no longer skips.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.visit(|workflow, job| workflow.judge(job, now));
    }

    /// As [`Workflow::advance`], after an action of an operator: jobs that react to failures are to
    /// react again. `before` is what was known before the action.
    pub(crate) fn advance_since(&mut self, before: &[Option<ParentOutcome>], now: Timestamp) {
        self.advance_with(before, &[], now);
    }

    /// Ends the attempt of a job that does not run again because of this attempt.
    pub(crate) fn finish(&mut self, index: JobIndex, state: JobState, now: Timestamp) {
        match self.job(index).rerun {
            Rerun::AfterEnd => self.advance_with(&self.all_news(), &[index], now),
            _ => self.end(index, state, now),
        }
    }

    /// Lets these jobs react once more: before each of them, a job failed that had been opened
    /// again since they began.
    pub(super) fn react_again(&mut self, jobs: &[JobIndex], now: Timestamp) {
        let (running, ended): (Vec<_>, Vec<_>) = jobs
            .iter()
            .partition(|&&job| matches!(self.job(job).state, JobState::Running { .. }));
        running
            .into_iter()
            .for_each(|job: JobIndex| self.job_mut(job).rerun = Rerun::AfterEnd);
        let ended: Vec<JobIndex> = ended
            .into_iter()
            .filter(|&job| self.has_ended_by_itself(job))
            .collect();
        if !ended.is_empty() {
            self.advance_with(&self.all_news(), &ended, now);
        }
    }

    /// Makes a job wait as if it had never run, because an operator says so. Does not change the
    /// jobs after it.
    pub(crate) fn set_back(&mut self, index: JobIndex, now: Timestamp) {
        self.revoke(index, LeaseEnd::Restarted);
        self.forget_run(index, now);
    }

    /// As [`Workflow::set_back`], because the rule of a job lets it run again after its end. The
    /// token is kept: when the report of that end is repeated, it gets the same answer.
    fn set_back_by_rule(&mut self, index: JobIndex, now: Timestamp) {
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
        let mut reacts = vec![false; self.jobs.len()];
        for &job in reacting {
            self.set_back_by_rule(job, now);
            reacts[job.index()] = true;
        }
        self.visit(|workflow, job| {
            workflow.follow(job, before, &mut reacts, now);
            workflow.judge(job, now);
        });
    }

    /// Decides whether a job that has run, or runs, is to run again because of the jobs before it,
    /// compared with `before`.
    fn follow(
        &mut self,
        job: JobIndex,
        before: &[Option<ParentOutcome>],
        reacts: &mut [bool],
        now: Timestamp,
    ) {
        let runs = matches!(self.job(job).state, JobState::Running { .. });
        if !runs && !self.has_ended_by_itself(job) {
            return;
        }
        let about = &self.graph.jobs[job.index()];
        let changes = about.parents.iter().filter_map(|parent| {
            if reacts[parent.index()] {
                Some(ParentChange::RunsAgain)
            } else {
                ParentChange::between(before[parent.index()], self.news_of(*parent))
            }
        });
        let rerun = changes
            .map(|change| Self::rerun_after(change, about.rule, self.job(job).rerun))
            .max();
        match rerun.unwrap_or_default() {
            Rerun::AfterEnd if !runs => {
                self.set_back_by_rule(job, now);
                reacts[job.index()] = true;
            }
            rerun @ (Rerun::AfterEnd | Rerun::AfterFailure)
                if self.job(job).rerun != Rerun::AfterEnd =>
            {
                self.job_mut(job).rerun = rerun;
            }
            _ => {}
        }
    }

    /// Whether a job with this rule is to run again after this change of a job before it.
    fn rerun_after(change: ParentChange, rule: TriggerRule, rerun: Rerun) -> Rerun {
        match (change, rule) {
            (ParentChange::RunsAgain, _) => Rerun::AfterEnd,
            // It cleans up after what runs again, however that ends.
            (ParentChange::OpenedAfterFailure, TriggerRule::AllDone) => Rerun::AfterEnd,
            (
                ParentChange::Opened | ParentChange::OpenedAfterFailure,
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

    /// Gives a job that neither ran nor runs the state that its rule says.
    fn judge(&mut self, index: JobIndex, now: Timestamp) {
        let job = self.job(index);
        match (job.state, self.verdict(index)) {
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
