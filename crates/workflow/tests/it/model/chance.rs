//! What people and workers come to do.

use std::time::Duration;

use tidegate_workflow::{Action, Outcome, Paused, StartMode, WorkflowId};

use super::step::{Asked, Step, action, graph, outcome};
use super::world::{SERVERS, World};

/// Workflows at one time: few, so that events meet.
const WORKFLOWS: usize = 5;
/// Names of queues that come up by and by.
const LATER_QUEUES: usize = 4;

impl World {
    /// One thing, or some at the same time, each with the server at which it is done.
    pub(crate) fn some_steps(&mut self) -> Vec<(usize, Step)> {
        let together = if self.rng.u8(..4) == 0 {
            self.rng.usize(2..5)
        } else {
            1
        };
        if together == 2 && !self.snapshots.is_empty() {
            return self.actions_on_one();
        }
        (0..together)
            .map(|_| (self.rng.usize(..SERVERS), self.some_step()))
            .collect()
    }

    /// Two people at one server do something to the same workflow: both is one write. Often it is ended and removed.
    fn actions_on_one(&mut self) -> Vec<(usize, Step)> {
        let server = self.rng.usize(..SERVERS);
        let id = self.some_workflow();
        let actions = if self.rng.bool() {
            [Action::Cancel, Action::Delete]
        } else {
            [self.some_action(id), self.some_action(id)]
        };
        actions.map(|action| (server, Step::Act(id, action))).into()
    }

    fn some_workflow(&mut self) -> WorkflowId {
        let ids: Vec<WorkflowId> = self.snapshots.keys().copied().collect();
        ids[self.rng.usize(..ids.len())]
    }

    fn some_action(&mut self, id: WorkflowId) -> Action {
        let jobs = &self.snapshots[&id].graph().jobs;
        let names: Vec<String> = jobs.iter().map(|job| job.name.clone()).collect();
        action(&mut self.rng, &names)
    }

    fn some_step(&mut self) -> Step {
        if self.rng.u8(..12) == 0 {
            let turns = self.rng.u8(..12);
            return Step::Abandoned(Box::new(self.some_deed()), turns);
        }
        self.some_deed()
    }

    fn some_deed(&mut self) -> Step {
        let asked = Asked::some(&mut self.rng, &self.queues);
        let rng = &mut self.rng;
        let lease = (!self.leases.is_empty()).then(|| self.leases[rng.usize(..self.leases.len())]);
        match (rng.u8(..46), lease) {
            (0..=3, _) if self.snapshots.len() < WORKFLOWS => self.creation(),
            (4..=8, _) => Step::Claim(asked),
            (9..=11, _) => Step::Wait(asked),
            (12, _) => Step::ClaimAll(self.everything()),
            (13..=24, Some(lease)) => {
                Step::Report(lease, outcome(rng), rng.bool().then_some(asked))
            }
            (25 | 26, Some(lease)) => Step::ReportTwice(lease, outcome(rng), asked),
            (27 | 28, Some(_)) => {
                let some = rng.usize(1..=self.leases.len());
                let mut leases = self.leases.clone();
                rng.shuffle(&mut leases);
                let reports = leases
                    .into_iter()
                    .take(some)
                    .map(|lease| (lease, outcome(rng)))
                    .collect();
                Step::ReportMany(reports, rng.bool().then_some(asked))
            }
            (29, Some(lease)) => Step::Extend(lease, Duration::from_secs(rng.u64(5..60))),
            (30..=33, _) => Step::Sweep,
            (34, _) => self.pause_or_resume(),
            (35 | 36, _) => Step::Beat,
            _ if self.snapshots.is_empty() => self.creation(),
            _ => {
                let id = self.some_workflow();
                Step::Act(id, self.some_action(id))
            }
        }
    }

    fn creation(&mut self) -> Step {
        let rng = &mut self.rng;
        let begin = if rng.u8(..4) == 0 {
            StartMode::Later
        } else {
            StartMode::Now
        };
        let known = (!self.keyed.is_empty() && rng.u8(..4) == 0)
            .then(|| self.keyed[rng.usize(..self.keyed.len())].clone());
        if rng.u8(..8) == 0 && self.queues.len() < 2 + LATER_QUEUES {
            self.queues.push(format!("later{}", self.queues.len()));
        }
        let graph = known.unwrap_or_else(|| {
            let key = (rng.u8(..3) == 0).then(|| format!("key{}", rng.u8(..3)));
            graph(rng, key, &self.queues)
        });
        if graph.idempotency_key.is_some() {
            self.keyed.push(graph.clone());
        }
        Step::Create(Box::new(graph), begin)
    }

    /// The newest queue as often as all others: its name may just be entered by somebody else.
    fn pause_or_resume(&mut self) -> Step {
        let rng = &mut self.rng;
        let at = if rng.bool() {
            self.queues.len() - 1
        } else {
            rng.usize(..self.queues.len())
        };
        Step::PauseQueue(
            self.queues[at].clone(),
            if rng.bool() { Paused::Yes } else { Paused::No },
        )
    }

    /// All that is ready.
    pub(crate) fn everything(&self) -> Asked {
        Asked {
            queues: self.queues.clone(),
            limit: 1_000,
        }
    }

    /// Some time passes, and then all that is ready is done at one server.
    pub(crate) async fn work(&mut self, server: usize) {
        self.now = self.now + Duration::from_secs(11);
        self.take_one(server, Step::Beat).await;
        self.take_one(server, Step::Sweep).await;
        self.leases.clear();
        self.take_one(server, Step::ClaimAll(self.everything()))
            .await;
        for lease in std::mem::take(&mut self.leases) {
            self.take_one(
                server,
                Step::Report(lease, Outcome::Succeeded { output: None }, None),
            )
            .await;
        }
    }
}
