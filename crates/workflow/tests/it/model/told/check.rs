//! Whether what a step was told is true.

use super::*;

impl World {
    /// What one caller was told is so.
    pub(crate) fn check_told(&self, before: &Snapshots, step: &Step, told: &Told) {
        let error = told.error();
        if let Some(EngineError::Store(error)) = error {
            assert!(
                matches!(
                    error,
                    StoreError::Unavailable { .. } | StoreError::Unknown { .. }
                ),
                "{error:?}"
            );
            assert!(self.weather.is_bad(), "the store works, and yet: {error:?}");
        }
        let unknown = matches!(error, Some(EngineError::Store(StoreError::Unknown { .. })));
        // Jobs may be leased to a worker that did not hear of it: their leases end.
        assert!(
            error.is_none()
                || unknown
                || step.may_claim()
                || versions(before) == versions(&self.snapshots),
            "written: {step:?} {told:?}"
        );
        match (step.deed(), told) {
            (Step::Create(graph, begin), Told::Created(created)) => {
                self.check_created(before, (graph, *begin == StartMode::Now), created)
            }
            (Step::Report(lease, outcome, _), Told::Reported(reported, _)) => {
                self.check_report(before, (*lease, outcome), reported);
            }
            (Step::ReportTwice(lease, ..), Told::Repeated(unheard, reported, claimed)) => {
                self.check_repeated(before, *lease, unheard, (reported, claimed));
            }
            (Step::Extend(lease, length), Told::Extended(extended)) if !self.is_down(error) => {
                self.check_extended(before, (*lease, *length), extended);
            }
            (Step::Act(id, action), Told::Status(status)) if !self.is_down(error) => {
                self.check_acted(&before[id], action, status);
            }
            // A store that has failed must prove itself before all is handed out again.
            (Step::ClaimAll(asked), Told::Claimed(Ok(claimed)))
                if !self.weather.is_bad() && self.engines[self.at].store_failures().is_empty() =>
            {
                self.check_claimed_all(before, asked, claimed);
            }
            (Step::Wait(asked), Told::Waited(woken, claimed)) => {
                self.check_waited(before, asked, *woken, claimed)
            }
            (Step::Sweep, _) if !self.weather.is_bad() => {
                let late = |(id, is): (&WorkflowId, &Snapshot)| {
                    self.is_home_of(id) && is.meta().timer.is_some_and(|timer| timer <= self.now)
                };
                assert!(
                    !self.snapshots.iter().any(late),
                    "something is due after a sweep"
                );
            }
            _ => {}
        }
    }

    /// Whether the server of the step is the home of the workflow's partition.
    fn is_home_of(&self, id: &WorkflowId) -> bool {
        let engine = &self.engines[self.at];
        let servers = engine.members();
        let own = servers
            .iter()
            .find(|server| server.id == engine.server_id());
        own.is_none_or(|own| own.partitions.contains(&id.partition()))
    }

    /// Whether a claim of all handed out what it must.
    fn check_claimed_all(&self, before: &Snapshots, asked: &Asked, claimed: &[Claimed]) {
        let handed_out = |(id, at): &LeaseOf| {
            let is_it = |claimed: &Claimed| {
                claimed.lease.workflow == *id && claimed.lease.job.index() == *at
            };
            claimed.iter().any(is_it)
        };
        // While there are jobs at home, those of other homes may be left to them.
        let left =
            |job: &LeaseOf| !handed_out(job) && (claimed.is_empty() || self.is_home_of(&job.0));
        let ready = self.ready(before, &asked.queues);
        assert!(!ready.iter().any(left), "all that is ready is handed out");
    }

    /// The jobs that a worker may have, the most urgent first.
    fn ready(&self, before: &Snapshots, queues: &[String]) -> Vec<LeaseOf> {
        let mut ready = Vec::new();
        for was in before
            .values()
            .filter(|was| was.meta().status == Status::Running)
        {
            for (at, (job, about)) in was.jobs().iter().zip(was.graph().jobs.iter()).enumerate() {
                let wanted = queues.contains(&about.queue) && !self.paused.contains(&about.queue);
                if wanted && job.state == JobState::Ready {
                    // What is at home elsewhere is left to its home for a while.
                    let left = if self.is_home_of(&was.id()) {
                        Duration::ZERO
                    } else {
                        LEFT_TO_HOME
                    };
                    let since = job.ready_at.unwrap();
                    let urgency = (u8::MAX - about.priority, since + left, since);
                    ready.push((urgency, (was.id(), at)));
                }
            }
        }
        ready.sort_unstable();
        ready.into_iter().map(|(_, job)| job).collect()
    }

    /// A worker that waits for a queue with a ready job gets one when it is woken, and it is the most urgent one. A worker for whom
    /// there is none sleeps.
    fn check_waited(
        &self,
        before: &Snapshots,
        asked: &Asked,
        woken: usize,
        claimed: &Result<Vec<Claimed>, EngineError>,
    ) {
        // Each stale row may cost a wake-up, and then it is gone.
        let allowed = if self.lost.is_empty() && !self.weather.is_bad() {
            1
        } else {
            WAKE_UPS - 1
        };
        assert!(
            woken <= allowed,
            "a worker was woken {woken} times and got {claimed:?}"
        );
        let Ok(claimed) = claimed else { return };
        let ready = self.ready(before, &asked.queues);
        if self.weather.is_bad() {
            return;
        }
        // Before its first look a server may not know that a queue is paused.
        assert!(
            !claimed.is_empty() || ready.is_empty(),
            "woken {woken} times, it sleeps beside {ready:?}"
        );
        if woken > 0 {
            let got: Vec<LeaseOf> = claimed
                .iter()
                .map(|got| (got.lease.workflow, got.lease.job.index()))
                .collect();
            assert_eq!(got, ready[..got.len()], "not the most urgent of {ready:?}");
            assert_eq!(got.len(), ready.len().min(asked.limit), "of {ready:?}");
        }
    }

    /// A worker that reports again hears what the first answer said.
    fn check_repeated(
        &self,
        before: &Snapshots,
        lease: LeaseRef,
        unheard: &[LeaseRef],
        (reported, claimed): (
            &Result<ReportAnswer, EngineError>,
            &Result<Vec<Claimed>, EngineError>,
        ),
    ) {
        let (Ok(reported), Ok(claimed)) = (reported, claimed) else {
            return;
        };
        if self.weather.is_bad() {
            return;
        }
        assert!(reported.already, "{reported:?}");
        let was_ready = |of: &LeaseRef| {
            before
                .get(&of.workflow)
                .is_some_and(|was| was.jobs()[of.job.index()].state == JobState::Ready)
        };
        // What came from the queue goes back when its lease ends, as after any claim that was not heard. What the report made ready enters
        // the queue when something more urgent is there, or was when the server last looked.
        let urgent = |of: &LeaseRef| {
            before[&of.workflow].graph().jobs[of.job.index()].priority == MOST_URGENT
                || *of == lease.successor(of.job)
        };
        let handed_over = unheard
            .iter()
            .filter(|of| of.workflow == lease.workflow && !was_ready(of) && urgent(of));
        for lost in handed_over {
            assert!(
                claimed.iter().any(|again| again.lease == *lost),
                "{lost} is leased to nobody: {claimed:?}"
            );
        }
    }

    fn check_created(
        &self,
        before: &Snapshots,
        (graph, now): (&Graph, bool),
        created: &Result<Created, EngineError>,
    ) {
        match created {
            Ok(created) => {
                let status = self.snapshots[&created.workflow].meta().status;
                assert_eq!(before.contains_key(&created.workflow), created.existing);
                assert_eq!(created.status, status);
                assert!(created.existing || now == (status != Status::Pending));
            }
            // The key of a workflow that was lost is still there.
            Err(EngineError::Contended { workflow }) if self.lost.contains(workflow) => {}
            Err(EngineError::KeyMismatch { workflow, .. }) => {
                assert_eq!(
                    before[workflow].graph().idempotency_key,
                    graph.idempotency_key
                );
            }
            Err(error) => assert!(self.is_down(Some(error)), "{error:?}"),
        }
    }

    fn check_acted(&self, was: &Snapshot, action: &Action, status: &Result<Status, EngineError>) {
        assert_eq!(
            status.is_ok(),
            allowed(was, action),
            "{action:?} {status:?}"
        );
        match status {
            Ok(_) if *action == Action::Delete => assert!(!self.snapshots.contains_key(&was.id())),
            Ok(status) => assert_eq!(self.snapshots[&was.id()].meta().status, *status),
            Err(_) => {}
        }
    }

    /// Whoever has the job has it for so long from now on, be that more or less than before.
    fn check_extended(
        &self,
        before: &Snapshots,
        (lease, length): (LeaseRef, Duration),
        extended: &Result<(), EngineError>,
    ) {
        let was = before
            .get(&lease.workflow)
            .map(|was| &was.jobs()[lease.job.index()]);
        let held = was.is_some_and(|job| {
            job.token == lease.token && matches!(job.state, JobState::Running { .. })
        });
        assert_eq!(extended.is_ok(), held, "{was:?}");
        if held {
            let is = &self.snapshots[&lease.workflow].jobs()[lease.job.index()];
            assert_eq!(
                is.state,
                JobState::Running {
                    expires: self.now + length
                },
                "{was:?}"
            );
        }
    }

    fn is_down(&self, error: Option<&EngineError>) -> bool {
        matches!(error, Some(EngineError::Store(_)))
    }

    fn check_report(
        &self,
        before: &Snapshots,
        (lease, outcome): (LeaseRef, &Outcome),
        reported: &Result<ReportAnswer, EngineError>,
    ) {
        let was = before
            .get(&lease.workflow)
            .map(|was| &was.jobs()[lease.job.index()]);
        match reported {
            Ok(reported) => {
                let was = was.expect("it is there");
                assert_eq!(was.token, lease.token, "{was:?}");
                assert_eq!(
                    reported.already,
                    !matches!(was.state, JobState::Running { .. }),
                    "{was:?}"
                );
                assert!(
                    !reported.already || may_follow(was, outcome),
                    "{outcome:?} was dropped: {was:?}"
                );
                let now = &self.snapshots[&lease.workflow].jobs()[lease.job.index()];
                let again = was.rerun == Rerun::AfterEnd;
                if !reported.already && !again && matches!(outcome, Outcome::Succeeded { .. }) {
                    assert_eq!(
                        (now.state, reported.job),
                        (JobState::Succeeded, JobState::Succeeded)
                    );
                }
            }
            Err(EngineError::Refused(_)) => {
                let was = was.expect("it is there");
                let runs = matches!(was.state, JobState::Running { .. });
                // Another report came before.
                let other = !runs && !may_follow(was, outcome);
                assert!(was.token != lease.token || other, "{was:?}");
            }
            Err(EngineError::NoWorkflow { .. }) => assert!(was.is_none()),
            Err(error) => assert!(self.is_down(Some(error)), "{error:?}"),
        }
    }
}

/// Whether a report with this outcome may have left a job, or its next attempt, so.
fn may_follow(job: &Job, outcome: &Outcome) -> bool {
    let state = job.state;
    if job.ended_by.is_some() {
        // It has ended with the report, and runs again by its rule.
        return matches!(
            outcome,
            Outcome::Succeeded { .. } | Outcome::Failed { .. } | Outcome::Crashed(_)
        );
    }
    match outcome {
        Outcome::Succeeded { .. } => state == JobState::Succeeded,
        Outcome::Failed { .. } | Outcome::Crashed(_) => {
            state == JobState::Failed || !state.is_over()
        }
        Outcome::Throttled { .. } | Outcome::Returned { .. } | Outcome::NotBegun => {
            !state.is_over() && !matches!(state, JobState::Running { .. })
        }
    }
}

fn versions(snapshots: &Snapshots) -> Vec<(WorkflowId, u64, u32)> {
    snapshots
        .iter()
        .map(|(id, snapshot)| (*id, snapshot.meta().version, snapshot.meta().writer))
        .collect()
}

/// Whether an operator may do this now.
fn allowed(was: &Snapshot, action: &Action) -> bool {
    let status = was.meta().status;
    let jobs = was.jobs();
    let state = |name: &String| jobs[was.graph().find(name).unwrap().index()].state;
    let started = status != Status::Pending;
    match action {
        Action::Start => !started,
        Action::Cancel => !status.is_over() || status == Status::Cancelled,
        Action::Pause | Action::Resume => matches!(status, Status::Running | Status::Paused),
        Action::RetryFailed => {
            let failed = jobs
                .iter()
                .any(|job| matches!(job.state, JobState::Failed | JobState::Cancelled));
            started && (failed || !status.is_over())
        }
        Action::Restart { jobs: names, scope } => {
            let mut chosen: Vec<_> = names
                .iter()
                .map(|name| was.graph().find(name).unwrap())
                .collect();
            if *scope == RestartScope::AndDescendants {
                chosen.extend(was.graph().descendants(&chosen));
            }
            let waits = chosen
                .iter()
                .all(|job| jobs[job.index()].state == JobState::Waiting);
            let stuck = chosen[..names.len()]
                .iter()
                .any(|&job| was.is_unreachable(job) || was.is_blocked(job));
            started
                && !(waits && stuck)
                && !chosen.iter().any(|job| jobs[job.index()].state.is_active())
        }
        Action::RetryJob(job) => {
            started && matches!(state(job), JobState::Failed | JobState::Cancelled)
        }
        Action::SkipJob(job) => {
            !matches!(state(job), JobState::Succeeded | JobState::Running { .. })
        }
        Action::CancelJob(job) => !state(job).is_over() || state(job) == JobState::Cancelled,
        Action::Delete => status.is_over() || !started,
        Action::MarkSucceeded { .. } | Action::Keep(_) => true,
    }
}
