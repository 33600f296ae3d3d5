//! The rules of jobs said a second time, by trying out what may still happen.

use tidegate_workflow::{JobIndex, JobState, Snapshot, TriggerRule};

/// How a job looks to the jobs after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Open,
    Good,
    Bad,
    Passed,
    /// It has not ended, but will not run.
    Doomed,
}

/// What should become of a job that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Waits,
    Runs,
    IsPassedOver,
    IsDoomed,
    IsBlocked,
}

fn admits(rule: TriggerRule, parents: &[Look]) -> bool {
    let any = |look| parents.contains(&look);
    match rule {
        _ if parents.is_empty() => true,
        TriggerRule::AllSuccess => parents.iter().all(|&look| look == Look::Good),
        TriggerRule::AllDone => !any(Look::Open) && !any(Look::Doomed),
        TriggerRule::AnySuccess => any(Look::Good),
        TriggerRule::AnyFailed => any(Look::Bad) || any(Look::Doomed),
        TriggerRule::NoneFailed => parents
            .iter()
            .all(|&look| matches!(look, Look::Good | Look::Passed)),
    }
}

/// Whether some way in which open parents may end lets the job run.
fn may_ever(rule: TriggerRule, parents: &mut [Look]) -> bool {
    match parents.iter().position(|&look| look == Look::Open) {
        None => admits(rule, parents),
        Some(at) => [Look::Good, Look::Bad, Look::Passed]
            .into_iter()
            .any(|end| {
                parents[at] = end;
                let may = may_ever(rule, parents);
                parents[at] = Look::Open;
                may
            }),
    }
}

fn looks(snapshot: &Snapshot, job: JobIndex) -> Vec<Look> {
    let parents = &snapshot.graph().jobs[job.index()].parents;
    parents
        .iter()
        .map(|&parent| look(snapshot, parent))
        .collect()
}

fn look(snapshot: &Snapshot, job: JobIndex) -> Look {
    match snapshot.jobs()[job.index()].state {
        JobState::Succeeded => Look::Good,
        JobState::Failed | JobState::Cancelled => Look::Bad,
        JobState::Skipped => Look::Passed,
        JobState::Waiting => match fate(snapshot, job) {
            Fate::IsBlocked => Look::Bad,
            Fate::IsDoomed => Look::Doomed,
            _ => Look::Open,
        },
        _ => Look::Open,
    }
}

/// What should become of a job, were it to wait now.
pub(crate) fn fate(snapshot: &Snapshot, job: JobIndex) -> Fate {
    let rule = snapshot.graph().jobs[job.index()].rule;
    let mut parents = looks(snapshot, job);
    if admits(rule, &parents) {
        return Fate::Runs;
    }
    let over = !parents.contains(&Look::Open) && !parents.contains(&Look::Doomed);
    // What is doomed ends badly.
    parents
        .iter_mut()
        .filter(|look| **look == Look::Doomed)
        .for_each(|look| *look = Look::Bad);
    let failed = parents.contains(&Look::Bad);
    match may_ever(rule, &mut parents) {
        true => Fate::Waits,
        // What failed may be retried, and then it runs.
        false if failed && over => Fate::IsBlocked,
        false if failed => Fate::IsDoomed,
        // An open parent may still fail, which would be another reason.
        false if !over => Fate::Waits,
        false => Fate::IsPassedOver,
    }
}
