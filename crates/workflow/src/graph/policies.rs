//! Policies of queues and handlers: limits that each of their jobs gets in addition to its own, and
//! weights of the keys of a queue.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::{
    ConcurrencyScope, GraphError, JobDefinition, LimitDefinition, LimitError, MAX_LIMIT_ENTRIES,
    MAX_WEIGHT, MAX_WEIGHTS, WeightError, check_name, resolve,
};

/// The target of policies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyTarget {
    /// A queue, by its name.
    Queue(String),
    /// A handler, by its name.
    Handler(String),
}

/// The weight of jobs whose limits have these entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// The entries, all of which one limit of the job must have.
    pub entries: Vec<(String, String)>,
    /// Jobs that are claimed for each job of a key without a weight.
    pub weight: u32,
}

/// The policies of all queues and handlers of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policies {
    pub(crate) limits: HashMap<PolicyTarget, Vec<LimitDefinition>>,
    pub(crate) weights: HashMap<String, Vec<Weight>>,
}

impl PolicyTarget {
    /// The name of the queue or handler.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Queue(name) | Self::Handler(name) => name,
        }
    }
}

impl std::fmt::Display for PolicyTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Queue(name) => write!(f, "queue '{name}'"),
            Self::Handler(name) => write!(f, "handler '{name}'"),
        }
    }
}

impl Policies {
    /// The limits of a queue or a handler.
    #[must_use]
    pub fn limits(&self, target: &PolicyTarget) -> &[LimitDefinition] {
        self.limits.get(target).map_or(&[], Vec::as_slice)
    }

    /// The weights of a queue.
    #[must_use]
    pub fn weights(&self, queue: &str) -> &[Weight] {
        self.weights.get(queue).map_or(&[], Vec::as_slice)
    }

    /// The maximum of running jobs of a queue and a handler under a concurrency limit. It is
    /// `own_max`, from the jobs, or the lowest current maximum of the queue and the handler, if
    /// that is lower. Without a queue or a handler, the policies of all of them count.
    pub(crate) fn lowest_concurrency(
        &self,
        queue: Option<&str>,
        handler: Option<&str>,
        set: &str,
        own_max: u32,
    ) -> u32 {
        if self.limits.is_empty() {
            return own_max;
        }
        let Ok(parts) = serde_json::from_str::<Vec<String>>(set) else {
            return own_max;
        };
        let is_of = |target: &PolicyTarget| match target {
            PolicyTarget::Queue(name) => queue.is_none_or(|queue| name == queue),
            PolicyTarget::Handler(name) => handler.is_none_or(|handler| name == handler),
        };
        let known = self
            .limits
            .iter()
            .filter(|(target, _)| is_of(target))
            .flat_map(|(_, limits)| limits);
        let numbers = known.filter_map(|limit| match limit {
            LimitDefinition::Concurrency { most, of, entries }
                if matches_permit_set(&parts, *of, entries) =>
            {
                Some(*most)
            }
            _ => None,
        });
        numbers.fold(own_max, u32::min)
    }

    /// The limits that a job gets before its own: those of its queue, then those of its handler.
    pub(super) fn for_job(
        &self,
        job: &JobDefinition,
    ) -> impl Iterator<Item = (PolicyTarget, &[LimitDefinition])> {
        let targets = (!self.limits.is_empty()).then(|| {
            [
                PolicyTarget::Queue(job.queue.clone()),
                PolicyTarget::Handler(job.handler.clone()),
            ]
        });
        targets.into_iter().flatten().map(|target| {
            let limits = self.limits(&target);
            (target, limits)
        })
    }
}

/// Whether a concurrency limit counts in the permit set whose name has these elements. A path
/// matches any value.
fn matches_permit_set(set: &[String], of: ConcurrencyScope, entries: &[(String, String)]) -> bool {
    let Some((scope, values)) = set.split_first() else {
        return false;
    };
    let same_scope = match of {
        ConcurrencyScope::Workflow => scope == "workflow" || scope.starts_with("workflow:"),
        ConcurrencyScope::Queue => scope.starts_with("queue:"),
        ConcurrencyScope::All => scope == "all",
    };
    let matches_pair = |(pair, (key, value)): (&[String], &(String, String))| {
        let text = value
            .strip_prefix('$')
            .filter(|rest| rest.starts_with('$'))
            .unwrap_or(value);
        pair[0] == *key && (value.starts_with("$.") || pair[1] == text)
    };
    same_scope
        && values.len() == 2 * entries.len()
        && values.chunks_exact(2).zip(entries).all(matches_pair)
}

/// Checks limits of a queue or a handler as far as that is possible without a job.
///
/// # Errors
/// The first mistake, with its path.
pub(crate) fn check_limits(
    target: &PolicyTarget,
    limits: &[LimitDefinition],
) -> Result<(), GraphError> {
    check_name(target.name(), || "name".to_owned())?;
    resolve::check(target, limits)
}

/// Checks the weights of a queue.
///
/// # Errors
/// The first mistake, with its path.
pub(crate) fn check_weights(queue: &str, weights: &[Weight]) -> Result<(), GraphError> {
    check_name(queue, || "name".to_owned())?;
    let wrong = |path: String, wrong| Err(GraphError::Weight { path, wrong });
    if weights.len() > MAX_WEIGHTS {
        let count = weights.len();
        return wrong("weights".to_owned(), WeightError::TooMany { count });
    }
    for (at, Weight { entries, weight }) in weights.iter().enumerate() {
        let path = |field: &str| format!("weights[{at}].{field}");
        if !(1..=MAX_WEIGHT).contains(weight) {
            return wrong(path("weight"), WeightError::Weight { weight: *weight });
        }
        let count = entries.len();
        if !(1..=MAX_LIMIT_ENTRIES).contains(&count) {
            return wrong(path("entries"), WeightError::Entries { count });
        }
        for (place, (key, value)) in entries.iter().enumerate() {
            check_entry(key, value).map_err(|wrong| GraphError::Limit {
                path: path(&format!("entries[{place}]")),
                wrong,
            })?;
        }
    }
    Ok(())
}

fn check_entry(key: &str, value: &str) -> Result<(), LimitError> {
    resolve::check_text(key, "the key", "this")?;
    resolve::check_text(value, "the value", "this")
}
