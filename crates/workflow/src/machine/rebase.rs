//! Rebase of an unwritten state onto a state that another server wrote, without visiting all jobs.

use std::collections::VecDeque;

use super::{ParentOutcome, Reachability, Workflow};
use crate::codec::{NewerState, StoreError, decode};
use crate::model::{Job, JobIndex, JobState, Meta};

/// Maximum updates per job. Beyond it, everything is recomputed in topological order, which visits
/// each job once.
const MAX_UPDATES_PER_JOB: usize = 4;

/// A job whose outcome for its children changed: the former and the new outcome.
type Correction = (JobIndex, Option<ParentOutcome>, Option<ParentOutcome>);

impl Workflow {
    /// Forgets the replaced parts after the latest change was applied.
    pub(crate) fn on_applied(&mut self) {
        self.in_flight = None;
    }

    /// Undoes the latest change, and adopts the writes of other servers since the expected state.
    /// Returns false if `later` does not contain all of these writes, so that the workflow must be
    /// read.
    ///
    /// # Errors
    /// The bytes are invalid. The workflow must be dropped.
    pub(crate) fn rebase(&mut self, later: &NewerState) -> Result<bool, StoreError> {
        let id = self.id;
        let meta: Meta = decode(&later.state.meta, || format!("the state of workflow {id}"))?;
        if meta.stamp() != later.stamp {
            return Ok(false);
        }
        let mut jobs = self
            .in_flight
            .take()
            .map_or_else(Vec::new, |written| written.stored_jobs);
        for (index, bytes) in &later.state.jobs {
            let what = || format!("the state of job {index} of workflow {id}");
            if index.index() >= self.jobs.len() {
                return Err(StoreError::corrupt(what(), "its graph has no such job"));
            }
            jobs.push((*index, decode(bytes, what)?));
        }
        // There are no unwritten changes, because the latest change contains them.
        self.meta = meta;
        self.stored = Some(later.state.meta.as_slice().into());
        self.replace(jobs);
        Ok(true)
    }

    /// Replaces jobs, and updates the derived facts of their descendants.
    fn replace(&mut self, jobs: impl IntoIterator<Item = (JobIndex, Job)>) {
        let mut queue = VecDeque::new();
        for (index, job) in jobs {
            let before = self.outcome_for_children(index);
            self.jobs[index.index()] = job;
            queue.extend(self.correction(index, before));
        }
        let mut updates_left = MAX_UPDATES_PER_JOB * self.jobs.len();
        while let Some((job, before, now)) = queue.pop_front() {
            if updates_left == 0 {
                return self.recount();
            }
            updates_left -= 1;
            let graph = std::sync::Arc::clone(&self.graph);
            for &child in graph.children(job) {
                let child_before = self.outcome_for_children(child);
                let counts = &mut self.progress[child.index()].parent_counts;
                if let Some(before) = before {
                    counts.remove(before);
                }
                if let Some(now) = now {
                    counts.add(now);
                }
                queue.extend(self.correction(child, child_before));
            }
        }
    }

    /// Recomputes the reachability of a job. Returns its new outcome for its children if that
    /// differs from `before`.
    fn correction(&mut self, index: JobIndex, before: Option<ParentOutcome>) -> Option<Correction> {
        let result = self.rule_result(index);
        self.progress[index.index()].reachability = match self.job(index).state {
            JobState::Waiting => result.reachability(),
            _ => Reachability::Open,
        };
        let now = self.outcome_for_children(index);
        (before != now).then_some((index, before, now))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::codec::{Format, StoredState, encode};
    use crate::graph::{Definition, Graph, JobDefinition, TriggerRule};
    use crate::machine::PendingChange;
    use crate::model::{Partition, Timestamp, WorkflowId};

    const RULES: [TriggerRule; 5] = [
        TriggerRule::AllSuccess,
        TriggerRule::AllDone,
        TriggerRule::AnySuccess,
        TriggerRule::AnyFailed,
        TriggerRule::NoneFailed,
    ];

    /// A graph of so many jobs, each after some of those before it.
    fn graph(jobs: usize, random: &mut fastrand::Rng) -> Arc<Graph> {
        let jobs = (0..jobs).map(|at| {
            let parents = (0..at)
                .filter(|_| random.usize(..jobs) < 3)
                .map(|parent| parent.to_string())
                .collect();
            let rule = *random.choice(RULES).as_ref().unwrap();
            JobDefinition {
                after: parents,
                rule,
                ..JobDefinition::new(at.to_string(), "handler")
            }
        });
        let definition = Definition {
            name: "w".to_owned(),
            jobs: jobs.collect(),
            ..Definition::default()
        };
        Arc::new(Graph::build(definition).unwrap())
    }

    fn any_state(random: &mut fastrand::Rng) -> Job {
        let at = Timestamp::from_micros(1);
        let states = [
            JobState::Waiting,
            JobState::Ready,
            JobState::Running { expires: at },
            JobState::Succeeded,
            JobState::Failed,
            JobState::Skipped,
        ];
        Job {
            state: *random.choice(&states).unwrap(),
            ..Job::default()
        }
    }

    #[test]
    fn what_follows_from_some_changed_jobs_is_what_follows_from_all() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let graph = graph(2 + random.usize(..20), &mut random);
            let id = WorkflowId::new(Timestamp::from_micros(1), Partition(0), 1);
            let mut meta = Workflow::new(id, Arc::clone(&graph), Timestamp::from_micros(1)).meta;
            let read = |jobs: &[Job], meta: &Meta| {
                let jobs = (0..)
                    .map(JobIndex)
                    .zip(jobs.iter().map(|job| encode(job, Format::LATEST)))
                    .collect();
                let state = StoredState {
                    meta: encode(meta, Format::LATEST),
                    jobs,
                    ..StoredState::default()
                };
                Workflow::read_state(id, Arc::clone(&graph), &state).unwrap()
            };
            let mut jobs: Vec<Job> = graph.jobs.iter().map(|_| any_state(&mut random)).collect();
            let mut workflow = read(&jobs, &meta);
            for _ in 0..10 {
                // Some jobs of a write that is not applied, and some that others have written.
                for _ in 0..random.usize(..4) {
                    let index = JobIndex(random.u32(..jobs.len() as u32));
                    let job = any_state(&mut random);
                    let before = workflow.jobs[index.index()].clone();
                    let since = || Box::new(PendingChange::since(meta.clone()));
                    let written = workflow.in_flight.get_or_insert_with(since);
                    if !written.stored_jobs.iter().any(|&(known, _)| known == index) {
                        written.stored_jobs.push((index, before));
                    }
                    workflow.replace([(index, job)]);
                }
                meta.version += 1;
                let changed: Vec<JobIndex> = (0..random.usize(..5))
                    .map(|_| JobIndex(random.u32(..jobs.len() as u32)))
                    .collect();
                changed
                    .iter()
                    .for_each(|job| jobs[job.index()] = any_state(&mut random));
                let written = changed
                    .iter()
                    .map(|&job| (job, encode(&jobs[job.index()], Format::LATEST)))
                    .collect();
                let state = StoredState {
                    meta: encode(&meta, Format::LATEST),
                    jobs: written,
                    ..StoredState::default()
                };
                assert_eq!(
                    workflow.rebase(&NewerState {
                        stamp: meta.stamp(),
                        state
                    }),
                    Ok(true)
                );
                let whole = read(&jobs, &meta);
                assert_eq!(workflow.jobs, whole.jobs, "seed {seed}");
                assert_eq!(workflow.progress, whole.progress, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_write_that_left_no_trail_makes_it_read_all() {
        let mut random = fastrand::Rng::with_seed(1);
        let id = WorkflowId::new(Timestamp::from_micros(1), Partition(0), 1);
        let mut workflow = Workflow::new(id, graph(3, &mut random), Timestamp::from_micros(1));
        let noted = workflow.meta.stamp();
        let meta = Meta {
            version: 2,
            ..workflow.meta.clone()
        };
        let state = StoredState {
            meta: encode(&meta, Format::LATEST),
            jobs: Vec::new(),
            ..StoredState::default()
        };
        assert_eq!(
            workflow.rebase(&NewerState {
                stamp: noted,
                state
            }),
            Ok(false)
        );
    }
}
