//! Limits of jobs in definitions and in answers.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tidegate_workflow::{ConcurrencyScope, LimitDefinition, Limits};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::body;
use crate::http::problem::Problem;

/// Limit that must admit a job before it runs: with `domain`, units of a rate limit, which requests
/// through the gateway use, too; with `concurrency`, a place among the jobs that run at the same
/// time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitDefinition))]
pub(crate) struct LimitBody {
    /// The domain of the configuration of rate limits.
    domain: Option<String>,
    /// How many units each attempt takes; 1 if left out.
    #[cfg_attr(test, schema(minimum = 1, maximum = 1_000_000))]
    hits: Option<u32>,
    /// How many jobs may run at the same time.
    #[cfg_attr(test, schema(minimum = 1, maximum = 100_000))]
    concurrency: Option<u32>,
    /// With `concurrency`: among which jobs.
    #[serde(default, deserialize_with = "body::optional_word")]
    of: Option<ScopeBody>,
    /// Pairs of a key and a value: with `domain` at least one, which are its descriptor; with `concurrency`, jobs with other entries are
    /// counted apart. A value that begins with `$.` is taken from the params of the job or from the globals when the workflow is created.
    #[cfg_attr(test, schema(value_type = Option<Vec<Vec<String>>>, max_items = 8))]
    entries: Option<Vec<EntryPair>>,
}

/// Among which jobs those are counted that run at the same time: those of the same workflow, of the same queue, or all.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(ToSchema), schema(as = Scope))]
enum ScopeBody {
    Workflow,
    Queue,
    All,
}

/// A key and a value.
#[derive(Debug)]
pub(crate) struct EntryPair(String, String);

impl EntryPair {
    pub(crate) fn pairs(entries: Vec<Self>) -> Vec<(String, String)> {
        entries
            .into_iter()
            .map(|Self(key, value)| (key, value))
            .collect()
    }
}

impl<'de> Deserialize<'de> for EntryPair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntryVisitor;
        impl<'de> Visitor<'de> for EntryVisitor {
            type Value = EntryPair;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(r#"a key and a value, such as ["tenant", "$.tenant"]"#)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<EntryPair, A::Error> {
                let (Some(key), Some(value), None) = (
                    items.next_element()?,
                    items.next_element()?,
                    items.next_element::<String>()?,
                ) else {
                    return Err(A::Error::custom(
                        r#"expected a key and a value, such as ["tenant", "$.tenant"]"#,
                    ));
                };
                Ok(EntryPair(key, value))
            }
        }
        deserializer.deserialize_seq(EntryVisitor)
    }
}

impl LimitBody {
    /// Validates the limits of a list. `path` is the path of the list.
    ///
    /// # Errors
    /// A limit is of neither kind, or of both.
    pub(crate) fn resolve_all(
        all: Vec<Self>,
        path: &dyn fmt::Display,
    ) -> Result<Vec<LimitDefinition>, Problem> {
        let resolve = |(at, limit): (usize, Self)| {
            limit
                .resolve()
                .map_err(|(field, detail)| Problem::field(format!("{path}[{at}]{field}"), detail))
        };
        all.into_iter().enumerate().map(resolve).collect()
    }

    /// Validates a limit. An error has the field and the detail.
    fn resolve(self) -> Result<LimitDefinition, (&'static str, &'static str)> {
        let entries = || EntryPair::pairs(self.entries.unwrap_or_default());
        match (self.domain, self.concurrency) {
            (Some(_), None) if self.of.is_some() => Err((
                ".of",
                "a limit with a domain has no 'of': it counts whatever takes its units",
            )),
            (Some(domain), None) => Ok(LimitDefinition::Units {
                domain,
                hits: self.hits.unwrap_or(1),
                entries: entries(),
            }),
            (None, Some(_)) if self.hits.is_some() => Err((
                ".hits",
                "a limit of concurrency has no 'hits': a job takes one place",
            )),
            (None, Some(most)) => {
                let of = match self
                    .of
                    .ok_or((".of", "say among which jobs: workflow, queue or all"))?
                {
                    ScopeBody::Workflow => ConcurrencyScope::Workflow,
                    ScopeBody::Queue => ConcurrencyScope::Queue,
                    ScopeBody::All => ConcurrencyScope::All,
                };
                Ok(LimitDefinition::Concurrency {
                    most,
                    of,
                    entries: entries(),
                })
            }
            (None, None) => Err((
                "",
                "a limit has a 'domain', whose units it takes, or a 'concurrency'",
            )),
            (Some(_), Some(_)) => Err((
                "",
                "a limit has a 'domain' or a 'concurrency': write two limits",
            )),
        }
    }
}

/// A limit: with `domain` and `hits` units of a rate limit, with `concurrency` and `of` a bound of jobs that run at the same time.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = Limit))]
pub(crate) struct LimitShown {
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// How many units each attempt takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    hits: Option<u32>,
    /// How many jobs may run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    /// Among which jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    of: Option<&'static str>,
    /// Pairs of a key and a value.
    #[cfg_attr(test, schema(value_type = Vec<Vec<String>>))]
    entries: Vec<(String, String)>,
}

impl LimitShown {
    /// Lists the limits of a job.
    pub(crate) fn list_from(limits: &Limits) -> Vec<Self> {
        limits
            .as_slice()
            .iter()
            .map(|limit| Self::from_definition(limit.definition()))
            .collect()
    }

    pub(crate) fn from_definition(limit: LimitDefinition) -> Self {
        let none = Self {
            domain: None,
            hits: None,
            concurrency: None,
            of: None,
            entries: Vec::new(),
        };
        match limit {
            LimitDefinition::Units {
                domain,
                entries,
                hits,
            } => Self {
                domain: Some(domain),
                hits: Some(hits),
                entries,
                ..none
            },
            LimitDefinition::Concurrency { most, of, entries } => {
                let of = match of {
                    ConcurrencyScope::Workflow => "workflow",
                    ConcurrencyScope::Queue => "queue",
                    ConcurrencyScope::All => "all",
                };
                Self {
                    concurrency: Some(most),
                    of: Some(of),
                    entries,
                    ..none
                }
            }
        }
    }
}
