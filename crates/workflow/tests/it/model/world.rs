//! One store, two servers, and everybody who uses them.

use std::time::Duration;

use fastrand::Rng;
use tidegate_workflow::{
    Action, Begin, Claimed, Engine, Graph, JobState, LeaseRef, OnFailure, Outcome, Partition, Paused, RowSet, Snapshot,
    Status, Timestamp, WorkflowId,
};
use tokio::task::JoinSet;

use super::check::{Snapshots, due, rows, whole_store};
use super::ground::Ground;
use super::oracle::{Fate, fate};
use super::step::{QUEUES, Step, action, graph, outcome};
use super::told::{Told, run};

/// Workflows at one time: few, so that events meet.
const WORKFLOWS: usize = 5;

pub(crate) struct World {
    rng: Rng,
    seed: u64,
    ground: Ground,
    engines: [Engine; 2],
    pub(crate) now: Timestamp,
    pub(crate) snapshots: Snapshots,
    leases: Vec<LeaseRef>,
    /// Graphs by key, to create again.
    keyed: Vec<Graph>,
    pub(crate) paused: Vec<&'static str>,
    pub(crate) faulty: bool,
    steps: usize,
}

impl World {
    pub(crate) async fn new(ground: Ground, seed: u64) -> Self {
        let engines = [ground.engine().await, ground.engine().await];
        let rng = Rng::with_seed(seed);
        let now = Timestamp::from_micros(1_795_000_000_000_000);
        let (snapshots, leases, keyed, paused) = (Snapshots::new(), Vec::new(), Vec::new(), Vec::new());
        Self { rng, seed, ground, engines, now, snapshots, leases, keyed, paused, faulty: false, steps: 0 }
    }

    fn some_step(&mut self) -> Step {
        let rng = &mut self.rng;
        let lease = (!self.leases.is_empty()).then(|| self.leases[rng.usize(..self.leases.len())]);
        let ids: Vec<WorkflowId> = self.snapshots.keys().copied().collect();
        match (rng.u8(..40), lease) {
            (0..=3, _) if ids.len() < WORKFLOWS => self.creation(),
            (4..=10, _) => Step::Claim(rng.usize(1..4)),
            (11, _) => Step::AbandonedClaim,
            (12, _) => Step::ClaimAll,
            (13..=26, Some(lease)) => Step::Report(lease, outcome(rng), (rng.u8(..2) == 0).then(|| rng.usize(1..4))),
            (27, Some(lease)) => Step::Extend(lease),
            (28..=31, _) => Step::Sweep,
            (32, _) => Step::PauseQueue(QUEUES[rng.usize(..2)], if rng.bool() { Paused::Yes } else { Paused::No }),
            _ if ids.is_empty() => self.creation(),
            _ => {
                let id = ids[rng.usize(..ids.len())];
                let jobs = &self.snapshots[&id].graph().jobs;
                let names: Vec<String> = jobs.iter().map(|job| job.name.clone()).collect();
                Step::Act(id, action(rng, &names))
            }
        }
    }

    fn creation(&mut self) -> Step {
        let rng = &mut self.rng;
        let begin = if rng.u8(..4) == 0 { Begin::Later } else { Begin::Now };
        let known =
            (!self.keyed.is_empty() && rng.u8(..4) == 0).then(|| self.keyed[rng.usize(..self.keyed.len())].clone());
        let graph = known.unwrap_or_else(|| {
            let key = (rng.u8(..3) == 0).then(|| format!("key{}", rng.u8(..3)));
            graph(rng, key)
        });
        if graph.idempotency_key.is_some() {
            self.keyed.push(graph.clone());
        }
        Step::Create(Box::new(graph), begin)
    }

    /// Time, faults and servers, which nobody asked for.
    async fn fate_strikes(&mut self) {
        if self.rng.u8(..4) == 0 {
            let seconds = [1, 3, 7, 25, 40][self.rng.usize(..5)];
            self.now = self.now + Duration::from_secs(seconds);
        }
        if self.rng.u8(..25) == 0 {
            // The server dies, and with it all that it had in memory.
            let which = self.rng.usize(..2);
            self.engines[which] = self.ground.engine().await;
        }
        if self.ground.loses() && self.rng.u8(..20) == 0 {
            self.faulty = !self.faulty;
            self.ground.lose(self.faulty, self.rng.fork());
        }
    }

    pub(crate) async fn step(&mut self) {
        self.fate_strikes().await;
        let together = if self.rng.u8(..5) == 0 { self.rng.usize(2..5) } else { 1 };
        let steps: Vec<Step> = (0..together).map(|_| self.some_step()).collect();
        let engine = self.engines[self.rng.usize(..2)].clone();
        if !self.ground.loses() && self.rng.u8(..25) == 0 {
            let death = Death { after: self.rng.usize(..30) };
            self.faulty = true;
            self.take(engine, steps, Some(death)).await;
            self.faulty = false;
        } else {
            self.take(engine, steps, None).await;
        }
    }

    async fn take(&mut self, mut engine: Engine, steps: Vec<Step>, death: Option<Death>) {
        self.steps += 1;
        let mut context = Context { seed: self.seed, step: self.steps, steps: steps.clone(), told: Vec::new() };
        let mut running = JoinSet::new();
        for (at, step) in steps.iter().cloned().enumerate() {
            let (engine, now) = (engine.clone(), self.now);
            running.spawn(async move { (at, run(engine, step, now).await) });
        }
        if let Some(Death { after }) = death {
            self.ground.die(after).await;
        }
        let mut told = Vec::new();
        while let Some(done) = running.join_next().await {
            told.push(done.unwrap());
        }
        await_abandoned(&engine, self.now).await;
        if death.is_some() {
            self.engines = self.ground.servers_after(self.engines.clone()).await;
            engine = self.engines[0].clone();
        }
        told.sort_by_key(|(at, _)| *at);
        context.told = told.iter().map(|(_, told)| format!("{told:?}").chars().take(2_000).collect()).collect();
        let after = whole_store(&engine).await;
        let before = std::mem::replace(&mut self.snapshots, after);
        self.check_jobs(&before, &steps);
        for (step, (_, told)) in steps.iter().zip(told) {
            if steps.len() == 1 {
                self.check_told(&before, step, &told);
            }
            self.remember(&before, step, told, steps.len()).await;
        }
        context.told.clear();
    }

    /// No job moved without a reason.
    fn check_jobs(&self, before: &Snapshots, steps: &[Step]) {
        let again = steps.iter().any(|step| matches!(step, Step::Act(_, Action::Restart { .. } | Action::RetryFailed)));
        let acted = |id: &WorkflowId| steps.iter().any(|step| matches!(step, Step::Act(of, _) if of == id));
        for (id, was) in before {
            let Some(is) = self.snapshots.get(id) else {
                let purged = was.meta().expires_at.is_some_and(|expires| expires <= self.now);
                assert!(acted(id) || purged, "{id} is gone");
                continue;
            };
            assert!(is.meta().version >= was.meta().version);
            for (at, (old, new)) in was.jobs().iter().zip(is.jobs()).enumerate() {
                let job = tidegate_workflow::JobIndex(at as u32);
                if old.state == JobState::Waiting && new.state.is_active() && (!again || steps.len() == 1) {
                    assert_eq!(fate(is, job), Fate::Runs, "job {at} ran ahead: {:?}", is.states());
                }
                if old.state.is_over() && !acted(id) {
                    assert_eq!(old, new, "an ended job changed");
                }
                if matches!(old.state, JobState::Running { .. }) && old.token != new.token && !acted(id) {
                    let lease = LeaseRef { workflow: *id, job, token: old.token };
                    let over = steps.iter().any(|step| matches!(step, Step::Report(of, ..) if *of == lease));
                    let another_failed =
                        is.graph().on_failure == OnFailure::FailFast && new.state == JobState::Cancelled;
                    let late = due(was, at).unwrap() <= self.now;
                    assert!(over || late || another_failed, "job {at} was taken from its worker");
                }
            }
        }
    }

    async fn remember(&mut self, before: &Snapshots, step: &Step, told: Told, together: usize) {
        if let Step::PauseQueue(queue, paused) = step {
            if let Told::Paused(Err(_)) = told {
                // Whoever is not answered does it again.
                self.engines[0].set_queue_paused(queue, *paused).await.unwrap();
            }
            self.paused.retain(|known| known != queue);
            self.paused.extend((*paused == Paused::Yes).then_some(*queue));
        }
        let (Told::Claimed(Ok(claimed)) | Told::Reported(_, Ok(claimed))) = told else { return };
        for claimed in claimed {
            let LeaseRef { workflow, job, token } = claimed.lease;
            if together == 1 {
                let is = &self.snapshots[&workflow];
                let job = &is.jobs()[job.index()];
                assert_eq!((job.token, job.attempt), (token, claimed.attempt));
                assert!(matches!(job.state, JobState::Running { expires } if expires == claimed.expires), "{job:?}");
                assert!(matches!(step, Step::Report(..)) || before[&workflow].meta().status == Status::Running);
                self.check_inputs(&claimed).await;
            }
            self.leases.push(claimed.lease);
        }
        // Late workers come back, but not for ever.
        while self.leases.len() > 12 {
            self.leases.remove(self.rng.usize(..6));
        }
    }

    /// A worker gets what the parents returned in their latest run, and not in an earlier one.
    async fn check_inputs(&self, claimed: &Claimed) {
        let parents = &claimed.job().parents;
        let results = self.engines[0].results(claimed.lease.workflow, parents).await.unwrap();
        let returned = parents.iter().zip(results).filter_map(|(job, result)| Some((*job, result.output?)));
        let inputs = claimed.inputs.iter().map(|input| (input.job, input.output.clone()));
        assert_eq!(inputs.collect::<Vec<_>>(), returned.collect::<Vec<_>>());
    }

    /// Faults stop, workers go on: all that was started comes to its end.
    pub(crate) async fn comes_to_rest(&mut self) {
        self.faulty = false;
        self.ground.lose(false, self.rng.fork());
        for queue in QUEUES {
            self.take(self.engines[0].clone(), vec![Step::PauseQueue(queue, Paused::No)], None).await;
        }
        let paused: Vec<_> = self.snapshots.iter().map(|(id, is)| (*id, is.meta().status)).collect();
        for (id, _) in paused.into_iter().filter(|(_, status)| *status == Status::Paused) {
            self.take(self.engines[1].clone(), vec![Step::Act(id, Action::Resume)], None).await;
        }
        for round in 0..60 {
            self.now = self.now + Duration::from_secs(11);
            let engine = self.engines[round % 2].clone();
            self.take(engine.clone(), vec![Step::Sweep], None).await;
            self.leases.clear();
            self.take(engine.clone(), vec![Step::ClaimAll], None).await;
            for lease in std::mem::take(&mut self.leases) {
                let outcome = Outcome::Succeeded { output: None };
                self.take(engine.clone(), vec![Step::Report(lease, outcome, None)], None).await;
            }
        }
        let open = |is: &&Snapshot| !is.meta().status.is_over() && is.meta().status != Status::Pending;
        let open: Vec<_> = self.snapshots.values().filter(open).map(Snapshot::states).collect();
        assert!(open.is_empty(), "seed {}: {open:?}", self.seed);
        assert_eq!(rows(self.engines[0].store(), RowSet::Ready).await, Vec::<Vec<u8>>::new());
    }
}

/// What nobody waits for any more goes on: a claim, and then the return of its jobs. Requests to one partition are served in order.
async fn await_abandoned(engine: &Engine, now: Timestamp) {
    for partition in [0, 1, 0, 1].map(Partition) {
        let nobody = WorkflowId::new(now, partition, 0);
        // Whether there is an answer does not matter.
        let _none = engine.act(nobody, Action::Pause, now).await;
    }
}

/// The store dies in the middle of a step.
#[derive(Clone, Copy)]
struct Death {
    /// So many turns of the runtime after the step began.
    after: usize,
}

/// Says what was done when a check fails.
struct Context {
    seed: u64,
    step: usize,
    steps: Vec<Step>,
    told: Vec<String>,
}

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, step {}: {:?}\ntold: {:?}", self.seed, self.step, self.steps, self.told);
        }
    }
}
