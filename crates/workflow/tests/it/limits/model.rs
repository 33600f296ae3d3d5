//! Random jobs with random limits, at three servers of one store: what was taken is what runs or ran, no limit is exceeded, and no job waits
//! for a limit that has room.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use fastrand::Rng;
use tidegate_workflow::{
    Claim, Claimed, ConcurrencyScope, Definition, Engine, HeartbeatQuery, JobDefinition, JobIndex,
    JobState, Limit, LimitDefinition, Outcome, Retention, ServerDescription, StartMode, Store,
    Timestamp, WorkflowId,
};

use tokio::task::JoinSet;

use super::windows::Windows;
use crate::support::{claim, create_of, failure, report, success};

const SERVERS: usize = 3;
const STEPS: usize = 120;
/// The room of each rate limit, and the places of each set.
const ROOM: [(&str, u64); 2] = [("vendor", 3), ("mail", 2)];
const PLACES: u32 = 2;
/// How long leases are, in seconds.
const LEASE: Duration = Duration::from_secs(5);

struct World {
    rng: Rng,
    store: Store,
    windows: Arc<Windows>,
    engines: Vec<Engine>,
    seconds: u64,
    workflows: Vec<WorkflowId>,
    leases: Vec<Claimed>,
    /// What jobs that reached a worker took in the current window, by descriptor.
    spent: BTreeMap<String, u64>,
    /// Servers that listen to each other.
    _listening: JoinSet<()>,
}

impl World {
    async fn new(store: Store, seed: u64) -> Self {
        let windows = Windows::new(&ROOM);
        let mut engines = Vec::new();
        for _ in 0..SERVERS {
            engines.push(windows.server(&store).await);
        }
        let mut listening = JoinSet::new();
        for engine in engines.clone() {
            listening.spawn(async move { engine.listen(|| crate::support::at(0)).await });
        }
        for engine in engines.iter().chain(&engines) {
            engine
                .heartbeat(
                    &ServerDescription::default(),
                    crate::support::at(0),
                    HeartbeatQuery::MembersOnly,
                )
                .await
                .unwrap();
        }
        let workflows = Vec::new();
        let leases = Vec::new();
        let spent = BTreeMap::new();
        let rng = Rng::with_seed(seed);
        Self {
            rng,
            store,
            windows,
            engines,
            seconds: 0,
            workflows,
            leases,
            spent,
            _listening: listening,
        }
    }

    fn now(&self) -> Timestamp {
        crate::support::at(self.seconds)
    }

    fn engine(&mut self) -> Engine {
        self.engines[self.rng.usize(..SERVERS)].clone()
    }

    async fn step(&mut self) {
        match self.rng.u8(..16) {
            0..=3 => self.create().await,
            4..=7 => self.claim_some().await,
            8 => self.leave_in_between().await,
            9..=12 => self.report_one().await,
            13 => self.extend_all().await,
            _ => self.pass_time().await,
        }
        self.check().await;
    }

    async fn create(&mut self) {
        let tenant = ["a", "b", "c"][self.rng.usize(..3)];
        let entries = || vec![("tenant".to_owned(), tenant.to_owned())];
        let limit = |kind: u8| match kind {
            0 | 1 => {
                let domain = ROOM[usize::from(kind)].0.to_owned();
                LimitDefinition::Units {
                    domain,
                    entries: entries(),
                    hits: 1 + u32::from(kind),
                }
            }
            2 => LimitDefinition::Units {
                domain: "free".to_owned(),
                entries: entries(),
                hits: 1,
            },
            3 => LimitDefinition::Concurrency {
                most: PLACES,
                of: ConcurrencyScope::All,
                entries: entries(),
            },
            _ => LimitDefinition::Concurrency {
                most: 1,
                of: ConcurrencyScope::Workflow,
                entries: Vec::new(),
            },
        };
        let jobs = (0..self.rng.usize(1..6)).map(|at| {
            let mut kinds: Vec<u8> = (0..5).collect();
            self.rng.shuffle(&mut kinds);
            kinds.truncate(self.rng.usize(..4));
            let limits = kinds.into_iter().map(limit).collect();
            JobDefinition {
                limits,
                priority: self.rng.u8(..2),
                ..JobDefinition::new(format!("j{at}"), "handler")
            }
        });
        let jobs = jobs.collect();
        let retention = Some(Retention::Forever);
        let definition = Definition {
            name: "test".to_owned(),
            jobs,
            retention,
            ..Definition::default()
        };
        let engine = self.engine();
        self.workflows
            .push(create_of(&engine, definition, StartMode::Now).await);
    }

    fn claim(limit: usize) -> Claim {
        Claim {
            lease: LEASE,
            ..claim(limit)
        }
    }

    async fn claim_some(&mut self) {
        let engine = self.engine();
        let limit = [1, 2, 5, 50][self.rng.usize(..4)];
        let claimed = engine.claim(&Self::claim(limit), self.now()).await.unwrap();
        self.take(claimed);
    }

    fn take(&mut self, claimed: Vec<Claimed>) {
        for job in claimed {
            for (descriptor, hits) in charges(&job) {
                *self.spent.entry(descriptor).or_default() += hits;
            }
            self.leases.push(job);
        }
    }

    /// A worker goes away while it claims.
    async fn leave_in_between(&mut self) {
        let engine = self.engine();
        let wants = Self::claim(9);
        let mut claiming = Box::pin(engine.claim(&wants, self.now()));
        for _ in 0..self.rng.u8(..6) {
            let poll = pin!(&mut claiming).poll(&mut Context::from_waker(Waker::noop()));
            if let std::task::Poll::Ready(claimed) = poll {
                drop(claiming);
                let claimed = claimed.unwrap();
                return self.take(claimed);
            }
            tokio::task::yield_now().await;
        }
    }

    async fn report_one(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let job = self.leases.swap_remove(self.rng.usize(..self.leases.len()));
        let outcome = match self.rng.u8(..5) {
            0 => failure(),
            1 => Outcome::Returned {
                pause: Duration::ZERO,
            },
            _ => success("1"),
        };
        // The lease may be over.
        let engine = self.engine();
        let _lost = report(&engine, job.lease, outcome, self.seconds).await;
    }

    async fn extend_all(&mut self) {
        let engine = self.engine();
        let extensions = self
            .leases
            .iter()
            .map(|job| (job.lease, self.now() + LEASE))
            .collect();
        engine.extend(extensions, self.now()).await;
    }

    async fn pass_time(&mut self) {
        self.seconds += self.rng.u64(1..4);
        self.windows.turn();
        self.spent.clear();
        for engine in &self.engines {
            engine.sweep(self.now()).await.unwrap();
        }
    }

    /// Who went away, and what is given back, is done with.
    async fn settle(&self) {
        for engine in &self.engines {
            for &workflow in &self.workflows {
                let _shown = engine.show(workflow).await;
            }
        }
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn check(&self) {
        let begin = std::time::Instant::now();
        loop {
            self.settle().await;
            match self.wrong().await {
                None => return,
                Some(wrong) => assert!(begin.elapsed() < Duration::from_secs(10), "{wrong}"),
            }
        }
    }

    /// What is wrong, and may be put right by what is still under way.
    async fn wrong(&self) -> Option<String> {
        for (domain, room) in ROOM {
            assert!(
                self.windows.most_taken(domain) <= room,
                "{domain} is exceeded"
            );
        }
        for (descriptor, spent) in &self.spent {
            let taken = self.windows.taken(descriptor);
            if taken != *spent {
                return Some(format!(
                    "{taken} of {descriptor} were taken, and {spent} spent"
                ));
            }
        }
        let mut running: BTreeMap<String, u32> = BTreeMap::new();
        for &workflow in &self.workflows {
            let snapshot = self.engines[0].show(workflow).await.unwrap();
            for (at, job) in snapshot.jobs().iter().enumerate() {
                if let (JobState::Running { .. }, Some(limits)) =
                    (job.state, snapshot.graph().limits(JobIndex(at as u32)))
                {
                    for limit in limits.for_workflow(workflow).as_slice() {
                        if let Limit::Concurrency { most, name } = limit {
                            let number = running.entry(name.clone()).or_default();
                            *number += 1;
                            assert!(*number <= *most, "{number} jobs run under {name}");
                        }
                    }
                }
            }
        }
        None
    }

    /// Whoever asks for all gets all for which there is room.
    async fn nobody_waits_for_what_there_is(&mut self) {
        let engine = self.engine();
        let begin = std::time::Instant::now();
        loop {
            engine.poll_store().await.unwrap();
            let claimed = engine.claim(&Self::claim(1_000), self.now()).await.unwrap();
            self.take(claimed);
            self.settle().await;
            // It may not have heard yet of a place that is free.
            match self.waits_for_nothing(&engine).await {
                None => return,
                Some(waits) => {
                    assert!(begin.elapsed() < Duration::from_secs(20), "{waits}");
                    self.seconds += 1;
                }
            }
        }
    }

    /// A job that is ready although its limits have room.
    async fn waits_for_nothing(&self, engine: &Engine) -> Option<String> {
        for &workflow in &self.workflows {
            let snapshot = engine.show(workflow).await.unwrap();
            for (at, job) in snapshot.jobs().iter().enumerate() {
                if job.state == JobState::Ready {
                    let limits = snapshot.graph().limits(JobIndex(at as u32));
                    let limits: Vec<Limit> = limits.map_or_else(Vec::new, |limits| {
                        limits.for_workflow(workflow).as_slice().to_vec()
                    });
                    let mut full = false;
                    for limit in &limits {
                        full |= self.is_full(limit).await;
                    }
                    if !full {
                        return Some(format!(
                            "job {at} of {workflow} waits for nothing: {limits:?}, {:?}",
                            snapshot.states()
                        ));
                    }
                }
            }
        }
        None
    }

    async fn is_full(&self, limit: &Limit) -> bool {
        match limit {
            Limit::Units {
                domain,
                entries,
                hits,
            } => {
                let room = ROOM
                    .iter()
                    .find(|(name, _)| name == domain)
                    .map_or(u64::MAX, |(_, room)| *room);
                let descriptor = entries.iter().fold(domain.clone(), |name, (key, value)| {
                    format!("{name}/{key}={value}")
                });
                self.windows.taken(&descriptor) + u64::from(*hits) > room
            }
            Limit::Concurrency { most, name } => {
                let holders = self
                    .store
                    .permit_holders(&[name], self.now(), 1)
                    .await
                    .remove(0)
                    .unwrap();
                holders.number >= *most
            }
        }
    }

    /// With time all jobs are done.
    async fn comes_to_rest(&mut self) {
        for _ in 0..2_000 {
            self.pass_time().await;
            self.nobody_waits_for_what_there_is().await;
            for job in std::mem::take(&mut self.leases) {
                let engine = self.engine();
                let _lost = report(&engine, job.lease, success("1"), self.seconds).await;
            }
            self.check().await;
            let mut left = 0;
            for &workflow in &self.workflows {
                let snapshot = self.engines[0].show(workflow).await.unwrap();
                left += snapshot
                    .jobs()
                    .iter()
                    .filter(|job| job.state.is_active())
                    .count();
            }
            if left == 0 {
                return;
            }
        }
        panic!("jobs wait for ever");
    }
}

/// What a job took.
fn charges(job: &Claimed) -> Vec<(String, u64)> {
    let Some(limits) = job.graph().limits(job.lease.job) else {
        return Vec::new();
    };
    let charge = |limit: &Limit| match limit {
        Limit::Units {
            domain,
            entries,
            hits,
        } => {
            let name = entries.iter().fold(domain.clone(), |name, (key, value)| {
                format!("{name}/{key}={value}")
            });
            Some((name, u64::from(*hits)))
        }
        Limit::Concurrency { .. } => None,
    };
    limits.as_slice().iter().filter_map(charge).collect()
}

pub(super) async fn live(store: impl AsyncFn() -> Store, worlds: u64) {
    for seed in 0..worlds {
        fastrand::seed(seed);
        let mut world = World::new(store().await, seed).await;
        for _ in 0..STEPS {
            world.step().await;
        }
        world.comes_to_rest().await;
    }
}
