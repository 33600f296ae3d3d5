//! The subject of a picture: a graph and the states of its jobs.

use super::state_style::StateStyle;
use crate::graph::Graph;
use crate::model::{Counts, JobIndex, JobState};

/// A graph to be drawn, with or without the states of its jobs.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    pub(super) graph: &'a Graph,
    states: Option<&'a [JobState]>,
}

impl<'a> Picture<'a> {
    /// A picture of a graph. Without states only the graph is drawn. States are in the order of the
    /// jobs; a job without a state is waiting.
    #[must_use]
    pub const fn new(graph: &'a Graph, states: Option<&'a [JobState]>) -> Self {
        Self { graph, states }
    }

    pub(super) fn style(&self, job: JobIndex) -> Option<&'static StateStyle> {
        self.state(job).map(StateStyle::for_state)
    }

    pub(super) fn state(&self, job: JobIndex) -> Option<JobState> {
        self.states
            .map(|states| states.get(job.index()).copied().unwrap_or_default())
    }

    /// A text such as "3 jobs: 2 succeeded, 1 running".
    pub(super) fn summary(&self, jobs: impl ExactSizeIterator<Item = JobIndex>) -> String {
        let count = jobs.len();
        let mut text = format!("{count} {}", if count == 1 { "job" } else { "jobs" });
        let Some(counts) = self.counts(jobs) else {
            return text;
        };
        let present = counts.entries().filter(|&(_, number)| number > 0);
        for (place, (word, number)) in present.enumerate() {
            text.push_str(if place == 0 { ": " } else { ", " });
            text.push_str(&format!("{number} {word}"));
        }
        text
    }

    pub(super) fn counts(&self, jobs: impl Iterator<Item = JobIndex>) -> Option<Counts> {
        self.states?;
        let mut counts = Counts::default();
        jobs.filter_map(|job| self.state(job))
            .for_each(|state| counts.0[state.index()] += 1);
        Some(counts)
    }

    pub(super) fn jobs(&self) -> impl ExactSizeIterator<Item = JobIndex> + use<> {
        self.graph.job_indexes()
    }
}
