//! Adoption of a workflow from another system.

use super::Workflow;
use crate::model::{
    AttemptError, Job, JobIndex, JobState, Retention, RetentionDefaults, Status, Timestamp,
};

/// The state of a workflow in another system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportedState {
    /// The time of the start. `None` if it was never started.
    pub started_at: Option<Timestamp>,
    /// The time of the end. `None` if it has not ended.
    pub finished_at: Option<Timestamp>,
    /// The time of removal. `None` for never.
    pub expires_at: Option<Timestamp>,
    /// Whether further jobs are started.
    pub continuation: Continuation,
    /// The jobs by index. None of them may be running.
    pub jobs: Vec<Job>,
    /// The outputs of jobs, as JSON text.
    pub outputs: Vec<(JobIndex, Vec<u8>)>,
    /// The errors of jobs.
    pub errors: Vec<(JobIndex, AttemptError)>,
}

/// The continuation of a workflow from another system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Continuation {
    /// Jobs that may run become ready.
    #[default]
    Continues,
    /// The workflow is paused.
    Paused,
    /// Only ready jobs run. Without ready jobs the workflow has ended, and a retry continues it.
    Halted,
}

impl Workflow {
    /// Continues the workflow from its state in another system.
    pub(crate) fn adopt(
        &mut self,
        imported: &ImportedState,
        defaults: RetentionDefaults,
        now: Timestamp,
    ) {
        for (index, job) in self.job_indexes().zip(&imported.jobs) {
            if *job != Job::default() {
                self.adopt_job(index, job, now);
            }
        }
        for (job, output) in &imported.outputs {
            self.put_output(*job, output);
        }
        for (job, error) in &imported.errors {
            self.put_error(*job, error);
        }
        let retention = |expires_at: Timestamp| Retention::For(expires_at.since(now));
        self.meta_mut().retention = Some(imported.expires_at.map_or(Retention::Forever, retention));
        if let Some(started_at) = imported.started_at {
            self.adopt_start(started_at, imported.continuation, defaults, now);
        }
        if self.meta.status.is_over() {
            let meta = self.meta_mut();
            meta.finished_at = imported.finished_at.or(meta.finished_at);
        }
    }

    fn adopt_job(&mut self, index: JobIndex, imported: &Job, now: Timestamp) {
        self.set_state(index, imported.state, now);
        let is_ready = imported.state == JobState::Ready;
        *self.job_mut(index) = Job {
            ready_at: imported.ready_at.or(is_ready.then_some(now)),
            ..imported.clone()
        };
    }

    /// Starts the workflow at the time at which it was started in another system.
    fn adopt_start(
        &mut self,
        started_at: Timestamp,
        continuation: Continuation,
        defaults: RetentionDefaults,
        now: Timestamp,
    ) {
        let meta = self.meta_mut();
        meta.started_at = Some(started_at);
        meta.status = match continuation {
            Continuation::Paused => Status::Paused,
            Continuation::Continues | Continuation::Halted => Status::Running,
        };
        match continuation {
            Continuation::Continues | Continuation::Paused => self.advance(now),
            Continuation::Halted => self.recount(),
        }
        self.update_status(defaults, now);
    }
}
