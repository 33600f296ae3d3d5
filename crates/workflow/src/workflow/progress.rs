//! When a job may run: its trigger rule applied to the ends of its parents.

use crate::graph::definition::TriggerRule;

/// How many parents of a job ended, and how; and how many are doomed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) succeeded: u32,
    /// Failed, cancelled, or blocked by a failure.
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
    /// They cannot run because of a failure, but have not ended.
    pub(crate) doomed: u32,
}

/// What follows for a job from the states of its workflow's jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    pub(super) tally: Tally,
    /// Whether it may still run, if it waits.
    pub(super) prospect: Prospect,
    /// Whether it is another than the one that the store has.
    pub(super) changed: bool,
}

impl PartialEq for Standing {
    /// Whether the same follows.
    fn eq(&self, other: &Self) -> bool {
        (self.tally, self.prospect) == (other.tally, other.prospect)
    }
}

/// What the jobs after a job hear of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    Succeeded,
    Failed,
    Skipped,
    /// It cannot run because of a failure, and waits for others to end.
    Doomed,
    /// It was doomed, and all jobs before it have ended.
    Blocked,
}

impl News {
    /// Whether it says that the job failed, or cannot run because of a failure.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Doomed | Self::Blocked)
    }
}

/// Whether a job that waits may still run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Prospect {
    #[default]
    Open,
    /// It cannot run because of a failure, but has not ended: jobs before it have not.
    Doomed,
    /// It cannot run because of a failure, and counts as ended: all jobs before it have ended.
    Blocked,
}

/// What follows for a job from the ends of its parents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It waits.
    Wait,
    Run,
    /// It is skipped: it will not run, although nothing failed.
    Skip,
    /// It is doomed: it cannot run because of a failure, but not all of its parents have ended.
    Doom,
    /// It is blocked: it cannot run because of a failure, and all of its parents have ended.
    Block,
}

impl Verdict {
    /// What it says of a job that waits.
    pub(crate) fn prospect(self) -> Prospect {
        match self {
            Self::Doom => Prospect::Doomed,
            Self::Block => Prospect::Blocked,
            Self::Wait | Self::Run | Self::Skip => Prospect::Open,
        }
    }
}

impl Tally {
    pub(crate) fn hear(&mut self, news: News) {
        match news {
            News::Succeeded => self.succeeded += 1,
            News::Failed => self.failed += 1,
            News::Skipped => self.skipped += 1,
            News::Doomed => self.doomed += 1,
            News::Blocked => {
                self.doomed -= 1;
                self.failed += 1;
            }
        }
    }

    /// Takes back what was heard: a state, not a step from one to another.
    pub(crate) fn unhear(&mut self, news: News) {
        match news {
            News::Succeeded => self.succeeded -= 1,
            News::Failed => self.failed -= 1,
            News::Skipped => self.skipped -= 1,
            News::Doomed => self.doomed -= 1,
            News::Blocked => {
                self.failed -= 1;
                self.doomed += 1;
            }
        }
    }

    /// Applies the rule for a job with this many parents.
    pub(crate) fn verdict(self, rule: TriggerRule, parents: usize) -> Verdict {
        let Self {
            succeeded,
            failed,
            skipped,
            doomed,
        } = self;
        let lost = failed + doomed;
        let all_over = (succeeded + failed + skipped) as usize == parents;
        match rule {
            _ if parents == 0 => Verdict::Run,
            TriggerRule::AnySuccess if succeeded > 0 => Verdict::Run,
            TriggerRule::AnyFailed if lost > 0 => Verdict::Run,
            TriggerRule::AllSuccess | TriggerRule::NoneFailed if lost > 0 && !all_over => {
                Verdict::Doom
            }
            TriggerRule::AnySuccess if doomed > 0 && (lost + skipped) as usize == parents => {
                Verdict::Doom
            }
            _ if !all_over => Verdict::Wait,
            TriggerRule::AllSuccess | TriggerRule::NoneFailed | TriggerRule::AnySuccess
                if failed > 0 =>
            {
                Verdict::Block
            }
            TriggerRule::AllSuccess if skipped > 0 => Verdict::Skip,
            TriggerRule::AnySuccess | TriggerRule::AnyFailed => Verdict::Skip,
            TriggerRule::AllSuccess | TriggerRule::NoneFailed | TriggerRule::AllDone => {
                Verdict::Run
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_decides_as_soon_as_it_can() {
        use TriggerRule::{AllDone, AllSuccess, AnyFailed, AnySuccess, NoneFailed};
        use Verdict::{Block, Doom, Run, Skip, Wait};
        // Succeeded, failed, skipped and doomed parents out of three; the verdicts of the five rules.
        let rules = [AllSuccess, AllDone, AnySuccess, AnyFailed, NoneFailed];
        let table = [
            ((0, 0, 0, 0), [Wait, Wait, Wait, Wait, Wait]),
            ((1, 0, 0, 0), [Wait, Wait, Run, Wait, Wait]),
            ((0, 1, 0, 0), [Doom, Wait, Wait, Run, Doom]),
            ((0, 0, 1, 0), [Wait, Wait, Wait, Wait, Wait]),
            ((3, 0, 0, 0), [Run, Run, Run, Skip, Run]),
            ((2, 0, 1, 0), [Skip, Run, Run, Skip, Run]),
            ((0, 0, 3, 0), [Skip, Run, Skip, Skip, Run]),
            ((2, 1, 0, 0), [Block, Run, Run, Run, Block]),
            ((0, 3, 0, 0), [Block, Run, Block, Run, Block]),
            ((0, 1, 2, 0), [Block, Run, Block, Run, Block]),
            ((0, 0, 0, 1), [Doom, Wait, Wait, Run, Doom]),
            ((2, 0, 0, 1), [Doom, Wait, Run, Run, Doom]),
            ((0, 2, 0, 1), [Doom, Wait, Doom, Run, Doom]),
            ((0, 0, 2, 1), [Doom, Wait, Doom, Run, Doom]),
            ((0, 0, 0, 3), [Doom, Wait, Doom, Run, Doom]),
        ];
        for ((succeeded, failed, skipped, doomed), verdicts) in table {
            let tally = Tally {
                succeeded,
                failed,
                skipped,
                doomed,
            };
            for (rule, verdict) in rules.into_iter().zip(verdicts) {
                assert_eq!(tally.verdict(rule, 3), verdict, "{rule:?} {tally:?}");
                assert_eq!(Tally::default().verdict(rule, 0), Run);
            }
        }
    }
}
