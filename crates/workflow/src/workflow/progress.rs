//! When a job may run: its trigger rule applied to the ends of its parents.

use crate::graph::definition::TriggerRule;

/// How many parents of a job ended, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) succeeded: u16,
    /// Failed, cancelled, or blocked by a failure.
    pub(crate) failed: u16,
    pub(crate) skipped: u16,
}

/// How a job ended, as the jobs after it see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    Failed,
    Skipped,
}

/// What follows for a job from the ends of its parents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It waits.
    Wait,
    Run,
    /// It is skipped: it will not run, although nothing failed.
    Skip,
    /// It is blocked: it cannot run because of a failure.
    Block,
}

impl Tally {
    pub(crate) fn add(&mut self, end: End) {
        match end {
            End::Succeeded => self.succeeded += 1,
            End::Failed => self.failed += 1,
            End::Skipped => self.skipped += 1,
        }
    }

    /// Applies the rule for a job with this many parents.
    pub(crate) fn verdict(self, rule: TriggerRule, parents: usize) -> Verdict {
        let Self { succeeded, failed, skipped } = self;
        let all_over = usize::from(succeeded) + usize::from(failed) + usize::from(skipped) == parents;
        match rule {
            _ if parents == 0 => Verdict::Run,
            TriggerRule::AllSuccess | TriggerRule::NoneFailed if failed > 0 => Verdict::Block,
            TriggerRule::AnySuccess if succeeded > 0 => Verdict::Run,
            TriggerRule::AnyFailed if failed > 0 => Verdict::Run,
            _ if !all_over => Verdict::Wait,
            TriggerRule::AllSuccess if skipped > 0 => Verdict::Skip,
            TriggerRule::AnySuccess if failed > 0 => Verdict::Block,
            TriggerRule::AnySuccess | TriggerRule::AnyFailed => Verdict::Skip,
            TriggerRule::AllSuccess | TriggerRule::NoneFailed | TriggerRule::AllDone => Verdict::Run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_decides_as_soon_as_it_can() {
        use TriggerRule::{AllDone, AllSuccess, AnyFailed, AnySuccess, NoneFailed};
        use Verdict::{Block, Run, Skip, Wait};
        // Succeeded, failed and skipped parents out of three; the verdicts of the five rules.
        let rules = [AllSuccess, AllDone, AnySuccess, AnyFailed, NoneFailed];
        let table = [
            ((0, 0, 0), [Wait, Wait, Wait, Wait, Wait]),
            ((1, 0, 0), [Wait, Wait, Run, Wait, Wait]),
            ((0, 1, 0), [Block, Wait, Wait, Run, Block]),
            ((0, 0, 1), [Wait, Wait, Wait, Wait, Wait]),
            ((3, 0, 0), [Run, Run, Run, Skip, Run]),
            ((2, 0, 1), [Skip, Run, Run, Skip, Run]),
            ((0, 0, 3), [Skip, Run, Skip, Skip, Run]),
            ((2, 1, 0), [Block, Run, Run, Run, Block]),
            ((0, 3, 0), [Block, Run, Block, Run, Block]),
            ((0, 1, 2), [Block, Run, Block, Run, Block]),
        ];
        for ((succeeded, failed, skipped), verdicts) in table {
            let tally = Tally { succeeded, failed, skipped };
            for (rule, verdict) in rules.into_iter().zip(verdicts) {
                assert_eq!(tally.verdict(rule, 3), verdict, "{rule:?} {tally:?}");
                assert_eq!(Tally::default().verdict(rule, 0), Run);
            }
        }
    }
}
