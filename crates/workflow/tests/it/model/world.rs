//! One store, three servers, and everybody who uses them.

use std::collections::{BTreeSet, HashSet};

use fastrand::Rng;
use tidegate_workflow::rows::ReadyJob;
use tidegate_workflow::{
    Action, Claimed, Engine, Graph, JobState, LeaseRef, OnFailure, Partition, Paused, Rerun,
    RowSet, Snapshot, Status, TimeIndex, Timestamp, WorkflowId, read_due_row,
};
use tokio::task::JoinSet;

use super::check::{Snapshots, due, rows, what_is_left};
use super::cost::Cost;
use super::ground::{Ground, PARTITIONS, Weather};
use super::oracle::{Fate, fate};
use super::step::{QUEUES, Step};
use super::told::{Told, run};

pub(crate) const SERVERS: usize = 3;

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) seed: u64,
    pub(crate) ground: Ground,
    pub(crate) engines: Vec<Engine>,
    pub(crate) now: Timestamp,
    pub(crate) snapshots: Snapshots,
    /// Leases that somebody may still use.
    pub(crate) leases: Vec<LeaseRef>,
    /// All leases of which somebody was told, or of which nobody could be told.
    pub(crate) told: HashSet<LeaseRef>,
    /// Graphs by key, to create again.
    pub(crate) keyed: Vec<Graph>,
    /// All that jobs ever named.
    pub(crate) queues: Vec<String>,
    pub(crate) paused: BTreeSet<String>,
    /// Workflows of which the store has lost the state.
    pub(crate) lost: BTreeSet<WorkflowId>,
    pub(crate) weather: Weather,
    /// The server of the latest step, if there was one alone.
    pub(crate) at: usize,
    steps: usize,
}

impl World {
    pub(crate) async fn new(ground: Ground, seed: u64) -> Self {
        let mut engines = Vec::new();
        for _ in 0..SERVERS {
            engines.push(ground.engine().await);
        }
        Self {
            rng: Rng::with_seed(seed),
            seed,
            ground,
            engines,
            now: Timestamp::from_micros(1_795_000_000_000_000),
            snapshots: Snapshots::new(),
            leases: Vec::new(),
            told: HashSet::new(),
            keyed: Vec::new(),
            queues: QUEUES.map(str::to_owned).to_vec(),
            paused: BTreeSet::new(),
            lost: BTreeSet::new(),
            weather: Weather::Fair,
            at: 0,
            steps: 0,
        }
    }

    pub(crate) async fn step(&mut self) {
        self.fate_strikes().await;
        let steps = self.some_steps();
        if let [(server, Step::Wait(_))] = steps[..] {
            // A server sweeps before it looks. Jobs of claims that failed are offered again then.
            self.take_one(server, Step::Sweep).await;
        }
        if self.ground.is_mortal() && self.weather == Weather::Fair && self.rng.u8(..25) == 0 {
            let after = self.rng.usize(..30);
            self.weather = Weather::Dying;
            self.take(steps, Some(Death { after })).await;
            self.weather = Weather::Fair;
        } else {
            self.take(steps, None).await;
        }
    }

    /// Does one thing at one server, when nothing can go wrong by itself.
    pub(crate) async fn take_one(&mut self, server: usize, step: Step) {
        self.take(vec![(server, step)], None).await;
    }

    /// Does these things at the same time, each at a server, and looks whether all is well afterwards.
    async fn take(&mut self, steps: Vec<(usize, Step)>, death: Option<Death>) {
        self.steps += 1;
        self.at = steps[0].0;
        let mut context = Context {
            seed: self.seed,
            step: self.steps,
            steps: steps.clone(),
            told: Vec::new(),
        };
        self.ground.becomes(self.weather, &mut self.rng).await;
        let cost = Cost::begin(&self.ground);
        let mut running = JoinSet::new();
        for (at, (server, step)) in steps.iter().cloned().enumerate() {
            let engine = self.engines[server].clone();
            let now = self.now;
            running.spawn(async move { (at, run(engine, step, now).await) });
        }
        if let Some(Death { after }) = death {
            self.ground.die(after).await;
        }
        let mut told = Vec::new();
        while let Some(done) = running.join_next().await {
            told.push(done.unwrap());
        }
        told.sort_by_key(|(at, _)| *at);
        let told: Vec<Told> = told.into_iter().map(|(_, told)| told).collect();
        context.told = told
            .iter()
            .map(|told| format!("{told:?}").chars().take(2_000).collect())
            .collect();
        self.await_abandoned(&steps).await;
        cost.check(&self.ground, steps.len());
        self.ground.holds_still();
        if death.is_some() {
            self.ground.servers_after(&mut self.engines).await;
        }
        let steps: Vec<Step> = steps.into_iter().map(|(_, step)| step).collect();
        self.check(&steps, &told).await;
        context.told.clear();
    }

    async fn check(&mut self, steps: &[Step], told: &[Told]) {
        let after = what_is_left(&self.engines[0], &self.lost).await;
        let before = std::mem::replace(&mut self.snapshots, after);
        self.check_jobs(&before, steps);
        if let ([step], [told]) = (steps, told)
            && !matches!(told, Told::Nothing)
        {
            self.check_told(&before, step, told);
        }
        self.check_leases(&before, steps, told);
        for (step, told) in steps.iter().zip(told) {
            self.remember(&before, step, told, steps.len()).await;
        }
        self.check_names(steps, told).await;
    }

    /// What nobody waits for any more goes on: a claim, and then the return of its jobs. Requests to one partition are served in order.
    async fn await_abandoned(&self, steps: &[(usize, Step)]) {
        for &(server, _) in steps {
            for partition in (0..3 * PARTITIONS).map(|at| Partition(at % PARTITIONS)) {
                let nobody = WorkflowId::new(self.now, partition, 0);
                // Whether there is an answer does not matter.
                let _none = self.engines[server]
                    .act(nobody, Action::Pause, self.now)
                    .await;
            }
        }
    }

    /// No job moved without a reason.
    fn check_jobs(&self, before: &Snapshots, steps: &[Step]) {
        // Of things that happen together one may take back what let a job run.
        let again = steps.iter().any(|step| step.takes_back());
        let acted = |id: &WorkflowId| steps.iter().any(|step| step.acts_on().as_ref() == Some(id));
        for (id, was) in before {
            let Some(is) = self.snapshots.get(id) else {
                let purged = was
                    .meta()
                    .expires_at
                    .is_some_and(|expires| expires <= self.now);
                assert!(acted(id) || purged, "{id} is gone");
                continue;
            };
            assert!(is.meta().version >= was.meta().version);
            // A failure makes jobs run again that react to it, and those after them.
            let reacts = was
                .jobs()
                .iter()
                .any(|job| matches!(job.rerun, Rerun::AfterFailure | Rerun::AfterEnd));
            for (at, (old, new)) in was.jobs().iter().zip(is.jobs()).enumerate() {
                let job = tidegate_workflow::JobIndex(at as u32);
                if old.state == JobState::Waiting
                    && new.state.is_active()
                    && (!again || steps.len() == 1)
                {
                    assert_eq!(
                        fate(is, job),
                        Fate::Runs,
                        "job {at} ran ahead: {:?}",
                        is.states()
                    );
                }
                let is_new =
                    matches!(new.state, JobState::Running { .. }) && old.token != new.token;
                let grew = new.fence > old.fence || (!is_new && new.fence == old.fence);
                assert!(grew, "{old:?} became {new:?}");
                if old.state.is_over() && !acted(id) && !reacts {
                    assert_eq!(old, new, "an ended job changed");
                }
                if matches!(old.state, JobState::Running { .. })
                    && old.token != new.token
                    && !acted(id)
                {
                    let lease = LeaseRef {
                        workflow: *id,
                        job,
                        token: old.token,
                    };
                    let over = steps.iter().any(|step| step.reports(lease));
                    let another_failed = is.graph().on_failure == OnFailure::FailFast
                        && new.state == JobState::Cancelled;
                    let late = due(was, at).unwrap() <= self.now;
                    assert!(
                        over || late || another_failed,
                        "job {at} was taken from its worker"
                    );
                }
            }
        }
    }

    async fn remember(&mut self, before: &Snapshots, step: &Step, told: &Told, together: usize) {
        if let (Step::PauseQueue(queue, paused), Told::Paused(Err(_)) | Told::Nothing) =
            (step.deed(), told)
        {
            // Whoever is not answered does it again.
            self.ground.becomes(Weather::Fair, &mut self.rng).await;
            self.engines[0]
                .set_queue_paused(queue, *paused)
                .await
                .unwrap();
            self.ground.holds_still();
        }
        for claimed in told.claimed() {
            let LeaseRef {
                workflow,
                job,
                token,
            } = claimed.lease;
            if together == 1 {
                let is = &self.snapshots[&workflow];
                let job = &is.jobs()[job.index()];
                // Another report of the same call may have failed the workflow.
                if matches!(step.deed(), Step::ReportMany(..)) && job.state == JobState::Cancelled {
                    continue;
                }
                assert_eq!((job.token, job.attempt), (token, claimed.attempt));
                assert!(
                    matches!(job.state, JobState::Running { expires } if expires == claimed.expires),
                    "{job:?}"
                );
                let may_be_new = !matches!(
                    step.deed(),
                    Step::Claim(_) | Step::ClaimAll(_) | Step::Wait(_)
                );
                assert!(may_be_new || before[&workflow].meta().status == Status::Running);
                self.check_inputs(claimed).await;
            }
            self.leases.push(claimed.lease);
        }
        // Late workers come back, but not for ever.
        while self.leases.len() > 16 {
            self.leases.remove(self.rng.usize(..6));
        }
    }

    /// A worker gets what the parents returned in their latest run, and not in an earlier one.
    async fn check_inputs(&self, claimed: &Claimed) {
        let parents = &claimed.job().parents;
        let results = self.engines[0]
            .results(claimed.lease.workflow, parents)
            .await
            .unwrap();
        let returned = parents
            .iter()
            .zip(results)
            .filter_map(|(job, result)| Some((*job, result.output?)));
        let inputs = claimed.inputs.iter().filter(|input| input.output != "null");
        let inputs = inputs.map(|input| (input.job, input.output.clone()));
        assert_eq!(inputs.collect::<Vec<_>>(), returned.collect::<Vec<_>>());
    }

    /// Which queues are paused, and whether all names can be found.
    async fn check_names(&mut self, steps: &[Step], told: &[Told]) {
        let states = self.engines[0].queue_states().await.unwrap().found;
        let is_paused = |name: &str| {
            states
                .iter()
                .any(|queue| queue.name == name && queue.paused == Paused::Yes)
        };
        let pauses = || {
            steps
                .iter()
                .zip(told)
                .filter(|(step, _)| matches!(step.deed(), Step::PauseQueue(..)))
        };
        if let [(Step::PauseQueue(name, paused), Told::Paused(Ok(())))] =
            pauses().collect::<Vec<_>>()[..]
        {
            assert_eq!(
                is_paused(name),
                *paused == Paused::Yes,
                "{name} was paused or resumed, and it was undone"
            );
        }
        let named = self
            .snapshots
            .values()
            .flat_map(|is| is.graph().jobs.iter().map(|job| &job.queue));
        for name in named {
            assert!(
                states.iter().any(|queue| queue.name == *name),
                "queue {name} is not known"
            );
        }
        self.paused = self
            .queues
            .iter()
            .filter(|name| is_paused(name))
            .cloned()
            .collect();
    }

    /// Faults stop, workers go on: all that was started comes to its end.
    pub(crate) async fn comes_to_rest(&mut self) {
        self.weather = Weather::Fair;
        for queue in self.queues.clone() {
            self.take_one(0, Step::PauseQueue(queue, Paused::No)).await;
        }
        let paused: Vec<_> = self
            .snapshots
            .iter()
            .map(|(id, is)| (*id, is.meta().status))
            .collect();
        for (id, _) in paused
            .into_iter()
            .filter(|(_, status)| *status == Status::Paused)
        {
            self.take_one(1, Step::Act(id, Action::Resume)).await;
        }
        for round in 0.. {
            if self.open().is_empty() {
                break;
            }
            assert!(round < 80, "seed {}: {:?}", self.seed, self.open());
            self.work(round % SERVERS).await;
        }
        // What is left of a lost workflow goes when its home does not find it for the second time, and homes may still move.
        for round in 0..4 * SERVERS {
            self.work(round % SERVERS).await;
        }
        let stale = |id: &WorkflowId| self.lost.contains(id);
        let ready = rows(self.engines[0].store(), RowSet::Ready).await;
        let ready = ready
            .iter()
            .map(|row| ReadyJob::read(row).unwrap().workflow)
            .find(stale);
        let timers = rows(self.engines[0].store(), RowSet::Due(TimeIndex::Timers)).await;
        let timers = timers
            .iter()
            .map(|row| read_due_row(row).unwrap().1)
            .find(stale);
        assert_eq!(
            (ready, timers),
            (None, None),
            "rows without a workflow are still there"
        );
    }

    /// Workflows that were started and have not ended.
    fn open(&self) -> Vec<String> {
        let open =
            |is: &&Snapshot| !is.meta().status.is_over() && is.meta().status != Status::Pending;
        self.snapshots
            .values()
            .filter(open)
            .map(|is| format!("{:?}", is.states()))
            .collect()
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
    steps: Vec<(usize, Step)>,
    told: Vec<String>,
}

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "seed {}, step {}: {:?}\ntold: {:?}",
                self.seed, self.step, self.steps, self.told
            );
        }
    }
}
