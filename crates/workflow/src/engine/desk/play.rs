//! What a request does to one workflow in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;

use super::entry::Entry;
use super::undelivered::Undelivered;
use crate::engine::Engine;
use crate::engine::claim::LeaseRef;
use crate::engine::error::EngineError;
use crate::graph::Graph;
use crate::graph::definition::Retention;
use crate::graph::json::Json;
use crate::id::{JobIndex, WorkflowId};
use crate::state::{JobState, Status};
use crate::time::Timestamp;
use crate::transition::{DeleteIf, Effect, Event, Lease, Outcome, RestartScope, transition};
use crate::workflow::{Imported, Workflow};

/// What an operator can do to a workflow. Jobs are named by name.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Starts it.
    Start,
    /// Cancels all that has not ended.
    Cancel,
    /// Hands out no more jobs.
    Pause,
    /// Hands out jobs again.
    Resume,
    /// Gives what failed, was cancelled or is blocked another chance.
    RetryFailed,
    /// Runs jobs again that ended.
    Restart {
        /// Their names.
        jobs: Vec<String>,
        /// Whether those after them run again too.
        scope: RestartScope,
    },
    /// Passes over a job: it will not run.
    SkipJob(String),
    /// Counts a job as succeeded.
    MarkSucceeded {
        /// Its name.
        job: String,
        /// What it counts as having returned.
        output: Option<Json>,
    },
    /// Cancels one job.
    CancelJob(String),
    /// Keeps the workflow so long after its end or, when it is over, from now on.
    Keep(Retention),
    /// Removes it, if it is over or was never started.
    Delete,
}

/// What becomes of a workflow right after its creation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Begin {
    /// It waits to be started.
    #[default]
    Later,
    /// It starts.
    Now,
    /// It goes on where another system left it.
    As(Box<Imported>),
}

/// What is asked of a workflow.
#[derive(Debug)]
pub(crate) enum Request {
    Create { graph: Arc<Graph>, begin: Begin, created_at: Timestamp },
    Act(Action),
    Claim { job: JobIndex, lease: Lease },
    Report { job: JobIndex, token: u64, outcome: Outcome, hand_over: Option<Arc<HandOver>> },
    Extend { job: JobIndex, token: u64, expires: Timestamp },
    Tick,
    Purge,
}

/// Whoever reports takes the jobs that become ready by it, as far as these rules go.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) queues: Vec<String>,
    pub(crate) worker: Box<str>,
    pub(crate) lease: Duration,
    /// How many more it takes.
    pub(crate) left: AtomicUsize,
}

/// What came of a request.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: Option<Status>,
    /// What the job in question is doing now.
    pub(crate) state: Option<JobState>,
    /// It had taken place before.
    pub(crate) already: bool,
    /// Jobs that the caller has now.
    pub(crate) leased: Vec<Leased>,
    /// Another workflow has the idempotency key.
    pub(crate) existing: Option<WorkflowId>,
}

/// What a parent returned.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) job: JobIndex,
    pub(crate) bytes: u32,
    /// None where it must be read.
    pub(crate) output: Option<Bytes>,
}

/// A job on lease, with what of its inputs is in memory.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) job: JobIndex,
    pub(crate) token: u64,
    pub(crate) expires: Timestamp,
    pub(crate) attempt: u16,
    pub(crate) graph: Arc<Graph>,
    /// What parents returned.
    pub(crate) inputs: Vec<Returned>,
    /// Gives it back if nobody gets it.
    pub(crate) undelivered: Undelivered,
}

impl HandOver {
    fn take_one(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    pub(crate) fn give_back(&self, jobs: usize) {
        self.left.fetch_add(jobs, Relaxed);
    }
}

/// Plays one request.
pub(crate) fn play(
    engine: &Engine,
    entry: &mut Entry,
    request: &Request,
    now: Timestamp,
) -> Result<Answer, EngineError> {
    if entry.workflow.is_deleted() {
        return Err(EngineError::NoWorkflow { workflow: entry.workflow.id });
    }
    let event = match event(&entry.workflow, request)? {
        Some(event) => event,
        None => return Ok(answer(&entry.workflow, None, Effect::Done)),
    };
    let known = entry.workflow.newly_ready().len();
    let effect = transition(&mut entry.workflow, &event, engine.retention(), now)?;
    let mut leased = Vec::new();
    let job = match request {
        Request::Claim { job, lease } => {
            leased.push(lease_of(engine, entry, (*job, lease), now));
            Some(*job)
        }
        Request::Report { job, hand_over, .. } => {
            if let Some(hand_over) = hand_over {
                leased = hand_over_ready(engine, entry, known, (hand_over, now));
            }
            Some(*job)
        }
        Request::Extend { job, .. } => Some(*job),
        _ => None,
    };
    let mut answer = answer(&entry.workflow, job, effect);
    answer.leased = leased;
    Ok(answer)
}

fn answer(workflow: &Workflow, job: Option<JobIndex>, effect: Effect) -> Answer {
    Answer {
        status: Some(workflow.meta.status),
        state: job.map(|job| workflow.job(job).state),
        already: effect == Effect::Already,
        leased: Vec::new(),
        existing: None,
    }
}

/// The event that a request stands for; none when the workflow only has to be there.
fn event(workflow: &Workflow, request: &Request) -> Result<Option<Event>, EngineError> {
    let named = |name: &str| {
        let none = || EngineError::NoJob { workflow: workflow.id, job: name.to_owned() };
        workflow.graph.find(name).ok_or_else(none)
    };
    let placed = |job: &JobIndex| {
        let none = || EngineError::NoJob { workflow: workflow.id, job: format!("#{job}") };
        workflow.graph.jobs.get(job.index()).map(|_| *job).ok_or_else(none)
    };
    Ok(Some(match request {
        Request::Create { begin: Begin::Now, .. } if workflow.meta.status == Status::Pending => Event::Start,
        Request::Create { .. } => return Ok(None),
        Request::Claim { job, lease } => Event::Claim { job: placed(job)?, lease: lease.clone() },
        Request::Report { job, token, outcome, .. } => {
            Event::Report { job: placed(job)?, token: *token, outcome: outcome.clone() }
        }
        Request::Extend { job, token, expires } => {
            Event::Extend { job: placed(job)?, token: *token, expires: *expires }
        }
        Request::Tick => Event::Tick,
        Request::Purge => Event::Delete(DeleteIf::Expired),
        Request::Act(action) => match action {
            Action::Start => Event::Start,
            Action::Cancel => Event::Cancel,
            Action::Pause => Event::Pause,
            Action::Resume => Event::Resume,
            Action::RetryFailed => Event::RetryFailed,
            Action::Restart { jobs, scope } => Event::Restart { jobs: all_named(workflow, jobs)?, scope: *scope },
            Action::SkipJob(job) => Event::Skip(named(job)?),
            Action::MarkSucceeded { job, output } => Event::MarkSucceeded { job: named(job)?, output: output.clone() },
            Action::CancelJob(job) => Event::CancelJob(named(job)?),
            Action::Keep(retention) => Event::Keep(*retention),
            Action::Delete => Event::Delete(DeleteIf::Idle),
        },
    }))
}

/// The jobs of these names, each once.
fn all_named(workflow: &Workflow, names: &[String]) -> Result<Vec<JobIndex>, EngineError> {
    // There may be as many names as jobs, and a search for each would take their product.
    let each = workflow.graph.jobs.iter().enumerate();
    let places: HashMap<&str, JobIndex> = each.map(|(at, job)| (job.name.as_str(), JobIndex(at as u16))).collect();
    let none = |name: &String| EngineError::NoJob { workflow: workflow.id, job: name.clone() };
    let find = |name: &String| places.get(name.as_str()).copied().ok_or_else(|| none(name));
    let mut jobs = names.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    jobs.sort_unstable();
    jobs.dedup();
    Ok(jobs)
}

/// Leases what has just become ready to the worker that made it so: the job never touches the queue.
fn hand_over_ready(
    engine: &Engine,
    entry: &mut Entry,
    known: usize,
    (hand_over, now): (&HandOver, Timestamp),
) -> Vec<Leased> {
    let ready: Vec<JobIndex> = entry.workflow.newly_ready()[known..].to_vec();
    let mut leased = Vec::new();
    for job in ready {
        let about = &entry.workflow.graph.jobs[job.index()];
        let fits = entry.workflow.meta.status == Status::Running
            && entry.workflow.job(job).state == JobState::Ready
            && hand_over.queues.contains(&about.queue)
            && engine.queues().may_hand_over(&about.queue, about.priority);
        if !fits {
            continue;
        }
        if !hand_over.take_one() {
            break;
        }
        let lease = Lease { token: new_token(), worker: hand_over.worker.clone(), expires: now + hand_over.lease };
        let event = Event::Claim { job, lease: lease.clone() };
        if transition(&mut entry.workflow, &event, engine.retention(), now).is_ok() {
            leased.push(lease_of(engine, entry, (job, &lease), now));
        }
    }
    leased
}

fn lease_of(engine: &Engine, entry: &Entry, (job, lease): (JobIndex, &Lease), now: Timestamp) -> Leased {
    let workflow = &entry.workflow;
    let parents = workflow.graph.jobs[job.index()].parents.iter();
    let inputs = parents
        .map(|&job| Returned { job, bytes: workflow.job(job).output_bytes, output: entry.outputs.get(&job).cloned() })
        .filter(|returned| returned.bytes > 0)
        .collect();
    let attempt = workflow.job(job).attempt;
    let graph = Arc::clone(&workflow.graph);
    let token = lease.token;
    let undelivered = Undelivered::new(engine, LeaseRef { workflow: workflow.id, job, token }, now);
    Leased { job, token, expires: lease.expires, attempt, graph, inputs, undelivered }
}

/// A token for a lease: not 0, which stands for none.
pub(crate) fn new_token() -> u64 {
    fastrand::u64(1..)
}
