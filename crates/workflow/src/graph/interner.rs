//! Sharing of equal jobs between graphs: workflows of one kind differ only in their params.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashSet;

use super::{Graph, GraphJobs};

/// Maximum jobs of a graph whose jobs are shared. Comparing more costs more than sharing saves.
const MAX_SHARED_JOBS: usize = 64;
/// Maximum bytes of all shared jobs. The sizes of workflows do not include their shared jobs.
const MAX_SHARED_BYTES: usize = 8 << 20;

/// The jobs that graphs in memory share.
#[derive(Debug, Default)]
pub(crate) struct GraphInterner(Mutex<InternedJobs>);

#[derive(Debug, Default)]
struct InternedJobs {
    job_lists: HashSet<Arc<GraphJobs>>,
    bytes: usize,
    /// Numbers of job lists that the latest cleanup kept, and that were added since.
    kept_count: usize,
    added_count: usize,
}

impl GraphInterner {
    /// Replaces the jobs of a graph by equal jobs in memory, if there are any.
    pub(crate) fn share(&self, mut graph: Graph) -> Graph {
        if graph.jobs.len() <= MAX_SHARED_JOBS {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .share(&mut graph.jobs);
        }
        graph
    }
}

impl InternedJobs {
    fn share(&mut self, jobs: &mut Arc<GraphJobs>) {
        if let Some(known) = self.job_lists.get(jobs) {
            // The jobs of `graph` are freed here.
            jobs.clone_from(known);
            return;
        }
        let bytes = jobs.bytes();
        self.added_count += 1;
        if self.bytes + bytes > MAX_SHARED_BYTES / 8 && self.added_count > self.kept_count {
            self.drop_unused();
        }
        if self.bytes + bytes <= MAX_SHARED_BYTES
            && let Some(own) = Arc::get_mut(jobs)
        {
            own.shared = true;
            self.bytes += bytes;
            self.job_lists.insert(Arc::clone(jobs));
        }
    }

    /// Drops job lists that no graph uses. Each added list pays for the check of one kept list.
    fn drop_unused(&mut self) {
        self.job_lists.retain(|jobs| Arc::strong_count(jobs) > 1);
        self.bytes = self.job_lists.iter().map(|jobs| jobs.bytes()).sum();
        self.kept_count = self.job_lists.len();
        self.added_count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Definition, JobDefinition};

    fn graph(job: &str, params: &str) -> Graph {
        let params = Some(crate::model::Json::from_checked(params));
        let jobs = vec![JobDefinition {
            params,
            ..JobDefinition::new(job, "handler")
        }];
        Graph::build(Definition {
            name: "w".to_owned(),
            jobs,
            ..Definition::default()
        })
        .unwrap()
    }

    #[test]
    fn graphs_that_differ_in_params_share_their_jobs() {
        let shapes = GraphInterner::default();
        let [one, two, other] = [("a", "{}"), ("a", "{\"k\":1}"), ("b", "{}")]
            .map(|(job, params)| shapes.share(graph(job, params)));
        assert!(Arc::ptr_eq(&one.jobs, &two.jobs) && !Arc::ptr_eq(&one.jobs, &other.jobs));
        assert_eq!(
            two.params(crate::model::JobIndex(0)).unwrap().text(),
            "{\"k\":1}"
        );
        assert_eq!(one, graph("a", "{}"));
        assert!(
            one.allocated_bytes() < graph("a", "{}").allocated_bytes(),
            "what is shared is not counted for each"
        );
    }

    #[test]
    fn what_nobody_has_is_forgotten_and_the_memory_is_bounded() {
        let shapes = GraphInterner::default();
        let name = |at: usize| format!("{at:0200}");
        let kept: Vec<Graph> = (0..100)
            .map(|at| shapes.share(graph(&name(at), "{}")))
            .collect();
        for at in 100..30_000 {
            shapes.share(graph(&name(at), "{}"));
        }
        let known = shapes.0.lock().unwrap();
        assert!(known.bytes <= MAX_SHARED_BYTES / 4, "{}", known.bytes);
        drop(known);
        kept.iter().enumerate().for_each(|(at, graph)| {
            assert!(Arc::ptr_eq(
                &shapes.share(self::graph(&name(at), "{}")).jobs,
                &graph.jobs
            ));
        });
        let all: Vec<Graph> = (0..60_000)
            .map(|at| shapes.share(graph(&name(at), "{}")))
            .collect();
        let known = shapes.0.lock().unwrap();
        assert!(known.bytes <= MAX_SHARED_BYTES, "{}", known.bytes);
        assert!(
            all.iter().any(|graph| !graph.jobs.shared),
            "those that have no room are counted"
        );
    }
}
