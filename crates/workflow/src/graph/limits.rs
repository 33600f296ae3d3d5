//! The limits of a job with all values filled in, and their text form, the limit key.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Deserialize;

use super::{ConcurrencyScope, LimitDefinition, MAX_LIMIT_KEY, allocation_bytes};
use crate::model::WorkflowId;

/// The limits that must all have room before a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Limits {
    limits: Box<[Limit]>,
    key: Box<str>,
}

/// A limit with all values filled in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Units of a rate limit.
    Units {
        /// The domain of the limiter's configuration.
        domain: String,
        /// The entries of the descriptor.
        entries: Vec<(String, String)>,
        /// Units of each attempt.
        hits: u32,
    },
    /// A maximum of jobs that run at the same time.
    Concurrency {
        /// The maximum of running jobs.
        most: u32,
        /// The name of the permit set: a JSON array of scope and entries. The maximum is not part
        /// of it.
        name: String,
    },
}

/// The scope of a concurrency limit per workflow before the workflow's id is known.
const OWN: &str = "workflow";
/// The prefix of the name of such a limit's permit set.
const OWN_SET: &str = "[\"workflow\"";

impl Limits {
    /// Merges duplicate limits: their hits are added up, and the lowest maximum of running jobs
    /// counts.
    pub(crate) fn new(limits: impl IntoIterator<Item = Limit>) -> Self {
        let merged = Self::distinct(limits);
        let key = write_key(merged.iter().map(Cow::Borrowed));
        Self {
            limits: merged.into(),
            key: key.into(),
        }
    }

    /// Merges duplicate limits.
    pub(super) fn distinct(limits: impl IntoIterator<Item = Limit>) -> Vec<Limit> {
        let mut merged: Vec<Limit> = Vec::new();
        for limit in limits {
            if !merged.iter_mut().any(|known| known.merge(&limit)) {
                merged.push(limit);
            }
        }
        merged
    }

    /// The limits in the order of the author.
    #[must_use]
    pub fn as_slice(&self) -> &[Limit] {
        &self.limits
    }

    /// Whether a rate limit is among them.
    pub(crate) fn has_rate_limits(&self) -> bool {
        self.limits
            .iter()
            .any(|limit| matches!(limit, Limit::Units { .. }))
    }

    /// The permit set and the maximum of running jobs of each concurrency limit.
    pub(crate) fn concurrency_limits(&self) -> impl Iterator<Item = (&String, u32)> {
        self.limits.iter().filter_map(|limit| match limit {
            Limit::Concurrency { most, name } => Some((name, *most)),
            Limit::Units { .. } => None,
        })
    }

    /// A text without control characters, which [`Limits::parse`] parses. Limits are equal if their
    /// keys are. It has 1 to [`MAX_LIMIT_KEY`] bytes.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The limits with this key. `None` if the key is invalid.
    #[must_use]
    pub fn parse(key: &str) -> Option<Self> {
        let limits: Vec<Vec<KeyItem>> = serde_json::from_str(key)
            .ok()
            .filter(|_| key.len() <= MAX_LIMIT_KEY)?;
        let parsed = limits
            .into_iter()
            .map(parse_limit)
            .collect::<Option<Vec<_>>>()?;
        let limits = Self::new(parsed);
        // Other texts for the same limits are refused, so that equal limits are in one lane of a
        // queue.
        (!limits.limits.is_empty() && limits.key() == key).then_some(limits)
    }

    /// The limits of a job of this workflow: concurrency limits per workflow contain its id.
    #[must_use]
    pub fn for_workflow(&self, workflow: WorkflowId) -> Cow<'_, Self> {
        if self.limits.iter().any(Limit::is_per_workflow) {
            Cow::Owned(Self::new(
                self.limits
                    .iter()
                    .map(|limit| limit.for_workflow(workflow).into_owned()),
            ))
        } else {
            Cow::Borrowed(self)
        }
    }

    /// The key of the limits of a job of this workflow, as ready rows contain it.
    #[must_use]
    pub fn key_for_workflow(&self, workflow: WorkflowId) -> Cow<'_, str> {
        match self.for_workflow(workflow) {
            Cow::Borrowed(limits) => Cow::Borrowed(&limits.key),
            Cow::Owned(limits) => Cow::Owned(limits.key.into()),
        }
    }

    /// Bytes of the key in a ready row, equal for all workflows.
    pub(super) fn max_key_bytes(&self) -> usize {
        self.key_for_workflow(WorkflowId::from_bytes([0; 16])).len()
    }

    /// Bytes in memory behind an `Arc`.
    pub(super) fn allocated_bytes(&self) -> usize {
        let text = |text: &String| allocation_bytes(text.capacity());
        let entry = |(key, value): &(String, String)| text(key) + text(value);
        let limit = |limit: &Limit| match limit {
            Limit::Units {
                domain, entries, ..
            } => {
                text(domain)
                    + allocation_bytes(entries.capacity() * size_of::<(String, String)>())
                    + entries.iter().map(entry).sum::<usize>()
            }
            Limit::Concurrency { name, .. } => text(name),
        };
        allocation_bytes(size_of::<Self>() + 2 * size_of::<usize>())
            + allocation_bytes(size_of_val(&*self.limits))
            + self.limits.iter().map(limit).sum::<usize>()
            + allocation_bytes(self.key.len())
    }
}

impl Limit {
    /// A concurrency limit of a job in this queue.
    pub(super) fn concurrency(
        most: u32,
        scope: ConcurrencyScope,
        queue: &str,
        entries: &[(String, String)],
    ) -> Self {
        let scope = match scope {
            ConcurrencyScope::Workflow => OWN,
            ConcurrencyScope::Queue => &format!("queue:{queue}"),
            ConcurrencyScope::All => "all",
        };
        let name = set_name(scope, entries);
        Self::Concurrency { most, name }
    }

    /// The definition of the limit, with all values filled in.
    #[must_use]
    pub fn definition(&self) -> LimitDefinition {
        match self {
            Self::Units {
                domain,
                entries,
                hits,
            } => LimitDefinition::Units {
                domain: domain.clone(),
                entries: entries.clone(),
                hits: *hits,
            },
            Self::Concurrency { most, name } => {
                let parts: Vec<String> = serde_json::from_str(name).unwrap_or_default();
                let of = match parts.first().and_then(|scope| scope.split(':').next()) {
                    Some(OWN) => ConcurrencyScope::Workflow,
                    Some("queue") => ConcurrencyScope::Queue,
                    _ => ConcurrencyScope::All,
                };
                let entries = parts
                    .get(1..)
                    .unwrap_or_default()
                    .chunks_exact(2)
                    .map(|pair| (pair[0].clone(), pair[1].clone()))
                    .collect();
                LimitDefinition::Concurrency {
                    most: *most,
                    of,
                    entries,
                }
            }
        }
    }

    /// Merges another limit into this one if both count the same units or jobs. Returns whether
    /// they do.
    fn merge(&mut self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Units {
                    domain,
                    entries,
                    hits,
                },
                Self::Units {
                    domain: same,
                    entries: these,
                    hits: more,
                },
            ) if domain == same && entries == these => {
                *hits = hits.saturating_add(*more);
                true
            }
            (
                Self::Concurrency { most, name },
                Self::Concurrency {
                    most: other,
                    name: same,
                },
            ) if name == same => {
                *most = (*most).min(*other);
                true
            }
            _ => false,
        }
    }

    fn is_per_workflow(&self) -> bool {
        matches!(self, Self::Concurrency { name, .. } if name.starts_with(OWN_SET))
    }

    fn for_workflow(&self, workflow: WorkflowId) -> Cow<'_, Self> {
        match self {
            Self::Concurrency { most, name } if self.is_per_workflow() => {
                let name = format!("[\"{OWN}:{workflow}\"{}", &name[OWN_SET.len()..]);
                Cow::Owned(Self::Concurrency { most: *most, name })
            }
            _ => Cow::Borrowed(self),
        }
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Units {
                domain,
                entries,
                hits,
            } => {
                text.push('[');
                write_quoted(text, domain);
                let _infallible = write!(text, ",{hits}");
                for part in texts(entries) {
                    text.push(',');
                    write_quoted(text, part);
                }
                text.push(']');
            }
            // The maximum precedes the elements of the name's array.
            Self::Concurrency { most, name } => {
                let _infallible = write!(text, "[{most},{}", &name[1..]);
            }
        }
    }
}

fn texts(entries: &[(String, String)]) -> impl Iterator<Item = &str> {
    entries
        .iter()
        .flat_map(|(key, value)| [key.as_str(), value])
}

fn write_key<'a>(limits: impl Iterator<Item = Cow<'a, Limit>>) -> String {
    let mut key = String::from("[");
    for (at, limit) in limits.enumerate() {
        if at > 0 {
            key.push(',');
        }
        limit.write(&mut key);
    }
    key.push(']');
    key
}

/// The name of a permit set.
fn set_name(scope: &str, entries: &[(String, String)]) -> String {
    let parts: Vec<&str> = std::iter::once(scope).chain(texts(entries)).collect();
    serde_json::to_string(&parts).expect("texts are always JSON")
}

fn write_quoted(text: &mut String, part: &str) {
    text.push_str(&serde_json::to_string(part).expect("a text is always JSON"));
}

/// An element of a limit key.
#[derive(Deserialize)]
#[serde(untagged)]
enum KeyItem {
    Number(u32),
    Text(String),
}

fn parse_limit(items: Vec<KeyItem>) -> Option<Limit> {
    let mut items = items.into_iter();
    match (items.next()?, items.next()?) {
        (KeyItem::Text(domain), KeyItem::Number(hits)) => {
            let entries = parse_entries(items)?;
            (hits > 0 && !entries.is_empty()).then_some(Limit::Units {
                domain,
                entries,
                hits,
            })
        }
        (KeyItem::Number(most), KeyItem::Text(scope)) => {
            let is_scope = matches!(&*scope, OWN | "all")
                || scope.starts_with("workflow:")
                || scope.starts_with("queue:");
            let name = set_name(&scope, &parse_entries(items)?);
            (most > 0 && is_scope).then_some(Limit::Concurrency { most, name })
        }
        _ => None,
    }
}

fn parse_entries(mut items: impl Iterator<Item = KeyItem>) -> Option<Vec<(String, String)>> {
    let mut entries = Vec::new();
    while let Some(key) = items.next() {
        let (KeyItem::Text(key), KeyItem::Text(value)) = (key, items.next()?) else {
            return None;
        };
        entries.push((key, value));
    }
    Some(entries)
}

#[cfg(test)]
mod tests;
