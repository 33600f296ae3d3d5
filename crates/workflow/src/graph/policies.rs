//! Policies of queues and handlers: limits that each of their jobs gets in addition to its own, and
//! weights of the keys of a queue.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::check::check_name;
use super::definition::{JobDefinition, LimitDefinition, Scope};
use super::error::{
    GraphError, MAX_LIMIT_ENTRIES, MAX_WEIGHT, MAX_WEIGHTS, WrongLimit, WrongWeight,
};
use super::resolve;

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
    pub fn limits(&self, subject: &PolicyTarget) -> &[LimitDefinition] {
        self.limits.get(subject).map_or(&[], Vec::as_slice)
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
        own: u32,
    ) -> u32 {
        if self.limits.is_empty() {
            return own;
        }
        let Ok(parts) = serde_json::from_str::<Vec<String>>(set) else {
            return own;
        };
        let is_of = |subject: &PolicyTarget| match subject {
            PolicyTarget::Queue(name) => queue.is_none_or(|queue| name == queue),
            PolicyTarget::Handler(name) => handler.is_none_or(|handler| name == handler),
        };
        let known = self
            .limits
            .iter()
            .filter(|(subject, _)| is_of(subject))
            .flat_map(|(_, limits)| limits);
        let numbers = known.filter_map(|limit| match limit {
            LimitDefinition::Concurrency { most, of, entries }
                if counts_in(&parts, *of, entries) =>
            {
                Some(*most)
            }
            _ => None,
        });
        numbers.fold(own, u32::min)
    }

    /// Whether no queue and no handler has limits.
    pub(super) fn have_no_limits(&self) -> bool {
        self.limits.is_empty()
    }

    /// The limits that a job gets before its own: those of its queue, then those of its handler.
    pub(super) fn of_job(
        &self,
        job: &JobDefinition,
    ) -> impl Iterator<Item = (PolicyTarget, &[LimitDefinition])> {
        let subjects = if self.limits.is_empty() {
            None
        } else {
            Some([
                PolicyTarget::Queue(job.queue.clone()),
                PolicyTarget::Handler(job.handler.clone()),
            ])
        };
        subjects.into_iter().flatten().map(|subject| {
            let limits = self.limits(&subject);
            (subject, limits)
        })
    }
}

/// Whether a concurrency limit counts in the permit set whose name has these elements. A path
/// matches any value.
fn counts_in(set: &[String], of: Scope, entries: &[(String, String)]) -> bool {
    let Some((scope, values)) = set.split_first() else {
        return false;
    };
    let same_scope = match of {
        Scope::Workflow => scope == "workflow" || scope.starts_with("workflow:"),
        Scope::Queue => scope.starts_with("queue:"),
        Scope::All => scope == "all",
    };
    let is = |(pair, (key, value)): (&[String], &(String, String))| {
        let text = value
            .strip_prefix('$')
            .filter(|rest| rest.starts_with('$'))
            .unwrap_or(value);
        pair[0] == *key && (value.starts_with("$.") || pair[1] == text)
    };
    same_scope && values.len() == 2 * entries.len() && values.chunks_exact(2).zip(entries).all(is)
}

/// Checks limits of a queue or a handler as far as that is possible without a job.
///
/// # Errors
/// The first mistake, with its path.
pub(crate) fn check_limits(
    subject: &PolicyTarget,
    limits: &[LimitDefinition],
) -> Result<(), GraphError> {
    check_name(subject.name(), || "name".to_owned())?;
    resolve::check(subject, limits)
}

/// Checks the weights of a queue.
///
/// # Errors
/// The first mistake, with its path.
pub(crate) fn check_weights(queue: &str, weights: &[Weight]) -> Result<(), GraphError> {
    check_name(queue, || "name".to_owned())?;
    let wrong = |path: String, wrong| Err(GraphError::Weight { path, wrong });
    if weights.len() > MAX_WEIGHTS {
        return wrong(
            "weights".to_owned(),
            WrongWeight::TooMany {
                count: weights.len(),
            },
        );
    }
    for (at, Weight { entries, weight }) in weights.iter().enumerate() {
        if !(1..=MAX_WEIGHT).contains(weight) {
            return wrong(
                format!("weights[{at}].weight"),
                WrongWeight::Weight { weight: *weight },
            );
        }
        if entries.is_empty() || entries.len() > MAX_LIMIT_ENTRIES {
            return wrong(
                format!("weights[{at}].entries"),
                WrongWeight::Entries {
                    count: entries.len(),
                },
            );
        }
        for (place, (key, value)) in entries.iter().enumerate() {
            let checked = resolve::check_text(key, "the key", "this")
                .and_then(|()| resolve::check_text(value, "the value", "this"));
            checked.map_err(|wrong: WrongLimit| GraphError::Limit {
                path: format!("weights[{at}].entries[{place}]"),
                wrong,
            })?;
        }
    }
    Ok(())
}
