//! Why jobs that are ready do not run, as far as a snapshot does not tell: limits without room, and handlers that no worker has.

use hashbrown::HashMap;
use tidegate_workflow::{JobIndex, JobState, Limits, Snapshot, WaitReason};

use crate::http::problem::Problem;
use crate::http::request::{RequestContext, in_time};

/// So many different limits, and kinds of jobs, are looked at for an answer. Other jobs just wait in their queue.
const MOST_LOOKS: usize = 20;

/// With what these jobs wait for. At most so many holders are told of a limit.
pub(super) async fn with_reasons(
    ask: &RequestContext<'_>,
    snapshot: Snapshot,
    jobs: &[JobIndex],
    holders: usize,
) -> Result<Snapshot, Problem> {
    let waiting = waiting(&snapshot, jobs);
    let mut found = full_limits(ask, &snapshot, &waiting, holders).await?;
    for job in without_handler(ask, &snapshot, &waiting) {
        found.entry(job).or_insert(WaitReason::NoHandler);
    }
    Ok(snapshot.with_reasons(found))
}

/// Those that are ready in a queue that is not paused, with what the snapshot tells of them.
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

/// The jobs that no worker of their queue runs.
fn without_handler(
    ask: &RequestContext<'_>,
    snapshot: &Snapshot,
    waiting: &[(JobIndex, WaitReason)],
) -> Vec<JobIndex> {
    let mut known = HashMap::new();
    let mut is_unserved = |job: &JobIndex| {
        let about = &snapshot.graph().jobs[job.index()];
        let queue = about.queue.as_str();
        let handler = about.handler.as_str();
        let is_beyond = known.len() >= MOST_LOOKS;
        !*known
            .entry((queue, handler))
            .or_insert_with(|| is_beyond || ask.api.roll.may_serve(queue, handler, ask.api.now()))
    };
    let in_queue = waiting
        .iter()
        .filter(|(_, reason)| *reason == WaitReason::InQueue)
        .map(|(job, _)| *job);
    in_queue.filter(|job| is_unserved(job)).collect()
}

/// The jobs whose limits have no room.
async fn full_limits(
    ask: &RequestContext<'_>,
    snapshot: &Snapshot,
    waiting: &[(JobIndex, WaitReason)],
    holders: usize,
) -> Result<HashMap<JobIndex, WaitReason>, Problem> {
    let mut limited: HashMap<&Limits, Vec<JobIndex>> = HashMap::new();
    for &(job, _) in waiting {
        let Some(limits) = snapshot.graph().limits(job) else {
            continue;
        };
        if limited.len() < MOST_LOOKS || limited.contains_key(&**limits) {
            limited.entry(limits).or_default().push(job);
        }
    }
    if limited.is_empty() {
        return Ok(HashMap::new());
    }
    let (limits, jobs): (Vec<_>, Vec<_>) = limited.into_iter().unzip();
    let limits: Vec<_> = limits
        .into_iter()
        .map(|limits| limits.within(snapshot.id()))
        .collect();
    let limits: Vec<&Limits> = limits.iter().map(AsRef::as_ref).collect();
    let full = in_time(
        ask.api
            .engine()
            .full_limits(&limits, holders, ask.api.now()),
    )
    .await?;
    let full = full
        .into_iter()
        .zip(jobs)
        .filter_map(|(full, jobs)| Some((WaitReason::NoRoom(Box::new(full?)), jobs)));
    Ok(full
        .flat_map(|(reason, jobs)| jobs.into_iter().map(move |job| (job, reason.clone())))
        .collect())
}
