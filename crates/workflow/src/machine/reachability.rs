//! The condition for running a job: its trigger rule applied to the outcomes of its parents.

use crate::graph::TriggerRule;

/// Numbers of a job's parents by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ParentCounts {
    pub(crate) succeeded: u32,
    /// Number of parents that failed, were cancelled, or are blocked by a failure.
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
    /// Number of parents that cannot run because of a failure, but have not ended.
    pub(crate) unreachable: u32,
}

/// Facts about a job that are derived from the states of its workflow's jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobProgress {
    pub(super) parent_counts: ParentCounts,
    /// Whether the job may still run, if it waits.
    pub(super) reachability: Reachability,
    /// Whether the job differs from the stored one.
    pub(super) changed: bool,
}

impl PartialEq for JobProgress {
    /// Compares the derived facts, without `changed`.
    fn eq(&self, other: &Self) -> bool {
        (self.parent_counts, self.reachability) == (other.parent_counts, other.reachability)
    }
}

/// The outcome of a job for its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParentOutcome {
    Succeeded,
    Failed,
    Skipped,
    /// The job cannot run because of a failure, and its other parents have not all ended.
    Unreachable,
    /// The job was unreachable, and all its parents have ended.
    Blocked,
}

impl ParentOutcome {
    /// Whether the job failed, or cannot run because of a failure.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Unreachable | Self::Blocked)
    }
}

/// Whether a waiting job may still run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reachability {
    #[default]
    Open,
    /// The job cannot run because of a failure, but has not ended because not all its parents have.
    Unreachable,
    /// The job cannot run because of a failure, and counts as ended because all its parents have
    /// ended.
    Blocked,
}

/// The result of a trigger rule for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleResult {
    /// The job waits.
    Wait,
    Run,
    /// The job is skipped: it will not run, although nothing failed.
    Skip,
    /// The job cannot run because of a failure, but not all of its parents have ended.
    Unreachable,
    /// The job cannot run because of a failure, and all of its parents have ended.
    Block,
}

impl RuleResult {
    /// The reachability of a waiting job with this result.
    pub(crate) fn reachability(self) -> Reachability {
        match self {
            Self::Unreachable => Reachability::Unreachable,
            Self::Block => Reachability::Blocked,
            Self::Wait | Self::Run | Self::Skip => Reachability::Open,
        }
    }
}

impl ParentCounts {
    pub(crate) fn add(&mut self, outcome: ParentOutcome) {
        match outcome {
            ParentOutcome::Succeeded => self.succeeded += 1,
            ParentOutcome::Failed => self.failed += 1,
            ParentOutcome::Skipped => self.skipped += 1,
            ParentOutcome::Unreachable => self.unreachable += 1,
            ParentOutcome::Blocked => {
                self.unreachable -= 1;
                self.failed += 1;
            }
        }
    }

    /// Removes an outcome that was added. [`ParentOutcome::Blocked`] undoes the step from
    /// unreachable to failed.
    pub(crate) fn remove(&mut self, outcome: ParentOutcome) {
        match outcome {
            ParentOutcome::Succeeded => self.succeeded -= 1,
            ParentOutcome::Failed => self.failed -= 1,
            ParentOutcome::Skipped => self.skipped -= 1,
            ParentOutcome::Unreachable => self.unreachable -= 1,
            ParentOutcome::Blocked => {
                self.failed -= 1;
                self.unreachable += 1;
            }
        }
    }

    /// Applies the rule of a job with this many parents.
    pub(crate) fn apply_rule(self, rule: TriggerRule, parents: usize) -> RuleResult {
        let Self {
            succeeded,
            failed,
            skipped,
            unreachable,
        } = self;
        let lost = failed + unreachable;
        let all_over = (succeeded + failed + skipped) as usize == parents;
        match rule {
            _ if parents == 0 => RuleResult::Run,
            TriggerRule::AnySuccess if succeeded > 0 => RuleResult::Run,
            TriggerRule::AnyFailed if lost > 0 => RuleResult::Run,
            TriggerRule::AllSuccess | TriggerRule::NoneFailed if lost > 0 && !all_over => {
                RuleResult::Unreachable
            }
            TriggerRule::AnySuccess if unreachable > 0 && (lost + skipped) as usize == parents => {
                RuleResult::Unreachable
            }
            _ if !all_over => RuleResult::Wait,
            TriggerRule::AllSuccess | TriggerRule::NoneFailed | TriggerRule::AnySuccess
                if failed > 0 =>
            {
                RuleResult::Block
            }
            TriggerRule::AllSuccess if skipped > 0 => RuleResult::Skip,
            TriggerRule::AnySuccess | TriggerRule::AnyFailed => RuleResult::Skip,
            TriggerRule::AllSuccess | TriggerRule::NoneFailed | TriggerRule::AllDone => {
                RuleResult::Run
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_decides_as_soon_as_it_can() {
        use RuleResult::{Block, Run, Skip, Unreachable, Wait};
        use TriggerRule::{AllDone, AllSuccess, AnyFailed, AnySuccess, NoneFailed};
        // Succeeded, failed, skipped and doomed parents out of three; the verdicts of the five
        // rules.
        let rules = [AllSuccess, AllDone, AnySuccess, AnyFailed, NoneFailed];
        let table = [
            ((0, 0, 0, 0), [Wait, Wait, Wait, Wait, Wait]),
            ((1, 0, 0, 0), [Wait, Wait, Run, Wait, Wait]),
            ((0, 1, 0, 0), [Unreachable, Wait, Wait, Run, Unreachable]),
            ((0, 0, 1, 0), [Wait, Wait, Wait, Wait, Wait]),
            ((3, 0, 0, 0), [Run, Run, Run, Skip, Run]),
            ((2, 0, 1, 0), [Skip, Run, Run, Skip, Run]),
            ((0, 0, 3, 0), [Skip, Run, Skip, Skip, Run]),
            ((2, 1, 0, 0), [Block, Run, Run, Run, Block]),
            ((0, 3, 0, 0), [Block, Run, Block, Run, Block]),
            ((0, 1, 2, 0), [Block, Run, Block, Run, Block]),
            ((0, 0, 0, 1), [Unreachable, Wait, Wait, Run, Unreachable]),
            ((2, 0, 0, 1), [Unreachable, Wait, Run, Run, Unreachable]),
            (
                (0, 2, 0, 1),
                [Unreachable, Wait, Unreachable, Run, Unreachable],
            ),
            (
                (0, 0, 2, 1),
                [Unreachable, Wait, Unreachable, Run, Unreachable],
            ),
            (
                (0, 0, 0, 3),
                [Unreachable, Wait, Unreachable, Run, Unreachable],
            ),
        ];
        for ((succeeded, failed, skipped, doomed), verdicts) in table {
            let tally = ParentCounts {
                succeeded,
                failed,
                skipped,
                unreachable: doomed,
            };
            for (rule, verdict) in rules.into_iter().zip(verdicts) {
                assert_eq!(tally.apply_rule(rule, 3), verdict, "{rule:?} {tally:?}");
                assert_eq!(ParentCounts::default().apply_rule(rule, 0), Run);
            }
        }
    }
}
