//! Servers tell each other where to look, and what they tell may get lost.

use std::time::{Duration, Instant};

use tidegate_workflow::{
    Definition, Engine, Graph, JobDefinition, JobState, LeaseRef, Outcome, Paused, StartMode,
};
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use super::ground::Weather;
use super::step::{Asked, Step};
use super::world::{SERVERS, World};

/// The queue of the jobs that are heard of.
const QUEUE: &str = "heard";
/// Nothing takes that long.
const PATIENCE: Duration = Duration::from_secs(10);

fn wanted() -> Step {
    let job = JobDefinition {
        queue: QUEUE.to_owned(),
        ..JobDefinition::new("heard", "handler")
    };
    let definition = Definition {
        name: "heard".to_owned(),
        jobs: vec![job],
        ..Definition::default()
    };
    Step::Create(Box::new(Graph::build(definition).unwrap()), StartMode::Now)
}

impl World {
    /// A worker waits at one server, and another one makes a job: the worker gets it within one wake-up, or when its server looks if word
    /// of it was lost.
    pub(crate) async fn word_gets_around(&mut self) {
        if self.weather != Weather::Fair || !self.ground.lose_messages(false) {
            return;
        }
        let waits = self.rng.usize(..SERVERS);
        let makes = self.rng.usize(..SERVERS);
        let asked = Asked {
            queues: vec![QUEUE.to_owned()],
            limit: 1,
        };
        if !self.queues.contains(&asked.queues[0]) {
            self.queues.push(QUEUE.to_owned());
        }
        self.take_one(makes, Step::PauseQueue(QUEUE.to_owned(), Paused::No))
            .await;
        let mut listeners = JoinSet::new();
        for engine in self.engines.clone() {
            let now = self.now;
            listeners.spawn(async move { engine.listen(move || now).await });
        }
        for server in (0..SERVERS).chain(0..SERVERS) {
            self.take_one(server, Step::Beat).await;
        }
        let engine = self.engines[waits].clone();
        // What was there before is done first.
        self.leases.clear();
        let arrival = loop {
            let arrival = engine.arrival(&asked.queues);
            engine.poll_store().await.unwrap();
            self.take_one(waits, Step::Claim(asked.clone())).await;
            match self.leases.pop() {
                Some(lease) => self.report_success(waits, lease).await,
                None => break arrival,
            }
        };
        until_it_hears_others(&engine).await;
        let lost = self.ground.lose_messages(self.rng.u8(..3) == 0) && makes != waits;
        self.take_one(makes, wanted()).await;
        self.ground.lose_messages(false);
        if lost {
            engine.poll_store().await.unwrap();
        }
        timeout(PATIENCE, arrival)
            .await
            .expect("the worker is woken");
        self.take_one(waits, Step::Claim(asked)).await;
        let lease = self
            .leases
            .pop()
            .expect("the worker that was woken gets the job");
        assert!(matches!(
            self.snapshots[&lease.workflow].jobs()[0].state,
            JobState::Running { .. }
        ));
        self.report_success(waits, lease).await;
        listeners.shutdown().await;
    }

    async fn report_success(&mut self, server: usize, lease: LeaseRef) {
        let outcome = Outcome::Succeeded { output: None };
        self.take_one(server, Step::Report(lease, outcome, None))
            .await;
    }
}

async fn until_it_hears_others(engine: &Engine) {
    let begin = Instant::now();
    while !engine.receives_notifications() {
        assert!(begin.elapsed() < PATIENCE, "it does not hear the others");
        yield_now().await;
    }
}
