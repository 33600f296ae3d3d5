//! Reasons for which ready jobs do not run that a snapshot does not have: exhausted limits, and
//! handlers without a worker.

use hashbrown::{HashMap, HashSet};
use tidegate_workflow::{ExhaustedLimit, JobIndex, JobState, Limits, Snapshot, WaitReason};

use crate::http::problem::Problem;
use crate::state::app_state::{RequestContext, with_read_timeout};

/// Most different limits that are checked for one answer, and most pairs of queue and handler.
/// Other jobs are shown as waiting in their queue.
const MAX_CHECKS: usize = 20;

/// Adds the reasons for which these jobs wait, with at most `holders` holders for each limit.
pub(super) async fn with_reasons(
    request: &RequestContext<'_>,
    snapshot: Snapshot,
    jobs: &[JobIndex],
    holders: usize,
) -> Result<Snapshot, Problem> {
    let waiting = waiting(&snapshot, jobs);
    let mut found = HashMap::new();
    for (full, jobs) in full_limits(request, &snapshot, &waiting, holders).await? {
        let reason = WaitReason::LimitReached(Box::new(full));
        for job in jobs {
            found.insert(job, reason.clone());
        }
    }
    for job in without_handler(request, &snapshot, &waiting) {
        found.entry(job).or_insert(WaitReason::NoHandler);
    }
    Ok(snapshot.with_reasons(found))
}

/// Returns the jobs of a whole workflow that a limit denies.
pub(super) async fn limited_jobs(
    request: &RequestContext<'_>,
    snapshot: &Snapshot,
) -> Result<HashSet<JobIndex>, Problem> {
    let all: Vec<JobIndex> = (0..snapshot.jobs().len() as u32).map(JobIndex).collect();
    let waiting = waiting(snapshot, &all);
    let full = full_limits(request, snapshot, &waiting, 1).await?;
    Ok(full.into_iter().flat_map(|(_, jobs)| jobs).collect())
}

/// Returns the jobs that are ready in a queue that is not paused, with the reason of the snapshot.
fn waiting(snapshot: &Snapshot, jobs: &[JobIndex]) -> Vec<(JobIndex, WaitReason)> {
    let ready = jobs
        .iter()
        .copied()
        .filter(|&job| snapshot.job(job).state == JobState::Ready);
    let reasons = ready.filter_map(|job| Some((job, snapshot.why_not_running(job)?)));
    reasons
        .filter(|(_, reason)| matches!(reason, WaitReason::InQueue | WaitReason::NoWorker))
        .collect()
}

/// Returns the jobs whose handler no worker of their queue has.
fn without_handler(
    request: &RequestContext<'_>,
    snapshot: &Snapshot,
    waiting: &[(JobIndex, WaitReason)],
) -> Vec<JobIndex> {
    let mut has_worker = HashMap::new();
    let mut has_no_worker = |job: &JobIndex| {
        let definition = &snapshot.graph().jobs[job.index()];
        let queue = definition.queue.as_str();
        let handler = definition.handler.as_str();
        let is_over_maximum = has_worker.len() >= MAX_CHECKS;
        !*has_worker.entry((queue, handler)).or_insert_with(|| {
            is_over_maximum
                || request
                    .api
                    .worker_registry
                    .may_serve(queue, handler, request.now())
        })
    };
    let in_queue = waiting
        .iter()
        .filter(|(_, reason)| *reason == WaitReason::InQueue)
        .map(|(job, _)| *job);
    in_queue.filter(|job| has_no_worker(job)).collect()
}

/// Returns the jobs that have limits, by their limits.
fn group_by_limits<'a>(
    snapshot: &'a Snapshot,
    waiting: &[(JobIndex, WaitReason)],
) -> HashMap<&'a Limits, Vec<JobIndex>> {
    let mut limited: HashMap<&Limits, Vec<JobIndex>> = HashMap::new();
    for &(job, _) in waiting {
        let Some(limits) = snapshot.graph().limits(job) else {
            continue;
        };
        if limited.len() < MAX_CHECKS || limited.contains_key(&**limits) {
            limited.entry(limits).or_default().push(job);
        }
    }
    limited
}

/// Returns exhausted limits, each with the jobs that it denies.
async fn full_limits(
    request: &RequestContext<'_>,
    snapshot: &Snapshot,
    waiting: &[(JobIndex, WaitReason)],
    holders: usize,
) -> Result<Vec<(ExhaustedLimit, Vec<JobIndex>)>, Problem> {
    let limited = group_by_limits(snapshot, waiting);
    if limited.is_empty() {
        return Ok(Vec::new());
    }
    let (limits, jobs): (Vec<_>, Vec<_>) = limited.into_iter().unzip();
    let limits: Vec<_> = limits
        .into_iter()
        .map(|limits| limits.for_workflow(snapshot.id()))
        .collect();
    let limits: Vec<&Limits> = limits.iter().map(AsRef::as_ref).collect();
    let full = with_read_timeout(request.engine().exhausted_limits(
        &limits,
        holders,
        request.now(),
    ))
    .await?;
    let full = full.into_iter().zip(jobs);
    Ok(full
        .filter_map(|(full, jobs)| Some((full?, jobs)))
        .collect())
}
