//! Fills in the values of the limits of a definition from the params of the job or from the
//! globals.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::{
    Definition, GraphError, InvalidPolicy, JobLimits, Limit, LimitDefinition, LimitError, Limits,
    MAX_CONCURRENCY, MAX_HITS, MAX_LIMIT_ENTRIES, MAX_LIMIT_KEY, MAX_LIMIT_TEXT, MAX_LIMITS,
    Policies, PolicyTarget, printable,
};
use crate::model::Json;

/// Maximum names in a path: each name costs one more parse of the text of a value.
const MAX_PATH_NAMES: usize = 8;

/// The limits of all jobs, with those of their queues and handlers first. `None` if no job has any.
pub(crate) fn limits(
    definition: &Definition,
    policies: &Policies,
) -> Result<Option<Box<JobLimits>>, GraphError> {
    if policies.limits.is_empty() && definition.jobs.iter().all(|job| job.limits.is_empty()) {
        return Ok(None);
    }
    let mut globals = LazyJson::new(definition.globals.as_ref());
    let each = definition.jobs.iter().enumerate().map(|(at, job)| {
        let given: Vec<_> = policies
            .for_job(job)
            .filter(|(_, limits)| !limits.is_empty())
            .collect();
        if job.limits.is_empty() && given.is_empty() {
            return Ok(None);
        }
        let mut params = LazyJson::new(job.params.as_ref());
        let mut resolver = Resolver {
            queue: &job.queue,
            sources: Some([&mut params, &mut globals]),
        };
        let resolved = resolver.resolve(&job.limits, &given);
        resolved.map(Some).map_err(|wrong| error_of_job(at, wrong))
    });
    Ok(JobLimits::new(each.collect::<Result<_, _>>()?))
}

/// The error for the limits of the job at a position.
fn error_of_job(job: usize, error: PolicyErrorAt) -> GraphError {
    match error {
        (None, path, wrong) => GraphError::Limit {
            path: format!("jobs[{job}].limits{path}"),
            wrong,
        },
        (Some(subject), at, wrong) => GraphError::Policy {
            path: format!("jobs[{job}]"),
            given: Box::new(InvalidPolicy { subject, at, wrong }),
        },
    }
}

/// Checks limits of a queue or a handler. Values at paths are not known yet.
pub(super) fn check(subject: &PolicyTarget, limits: &[LimitDefinition]) -> Result<(), GraphError> {
    let mut resolver = Resolver {
        queue: subject.name(),
        sources: None,
    };
    let checked = resolver.resolve(limits, &[]).map(drop);
    checked.map_err(|(_, path, wrong)| GraphError::Limit {
        path: format!("limits{path}"),
        wrong,
    })
}

/// The limits of one job, and the number of the first ones that come from its queue and handler.
#[derive(Debug)]
pub(crate) struct ResolvedLimits {
    pub(crate) limits: Limits,
    pub(super) inherited: usize,
}

/// A path within the limits of the job, and the error there.
type LimitErrorAt = (String, LimitError);

/// The queue or handler that a wrong limit belongs to, if not to the job itself, and the error.
type PolicyErrorAt = (Option<PolicyTarget>, String, LimitError);

struct Resolver<'r, 'json> {
    queue: &'r str,
    /// The sources of the values of paths: the params of the job and the globals. `None` if no job
    /// exists yet.
    sources: Option<[&'r mut LazyJson<'json>; 2]>,
}

impl Resolver<'_, '_> {
    /// Resolves the limits of a job. An error in a limit of its queue or handler names that queue
    /// or handler.
    fn resolve(
        &mut self,
        own: &[LimitDefinition],
        inherited: &[(PolicyTarget, &[LimitDefinition])],
    ) -> Result<ResolvedLimits, PolicyErrorAt> {
        let inherited_count = inherited.iter().map(|(_, limits)| limits.len()).sum();
        let count = own.len() + inherited_count;
        if count > MAX_LIMITS {
            let given = inherited_count;
            return Err((None, String::new(), LimitError::TooMany { count, given }));
        }
        let mut all = Vec::with_capacity(count);
        for (subject, limits) in inherited {
            all.extend(self.resolve_limits(limits, Some(subject))?);
        }
        let inherited = Limits::distinct(all.clone()).len();
        all.extend(self.resolve_limits(own, None)?);
        let limits = Limits::new(all);
        match limits.max_key_bytes() {
            bytes if bytes > MAX_LIMIT_KEY => {
                Err((None, String::new(), LimitError::TooLong { bytes }))
            }
            _ => Ok(ResolvedLimits { limits, inherited }),
        }
    }

    /// Resolves limits of the job itself, or of this queue or handler.
    fn resolve_limits(
        &mut self,
        limits: &[LimitDefinition],
        owner: Option<&PolicyTarget>,
    ) -> Result<Vec<Limit>, PolicyErrorAt> {
        let limit = |(at, limit): (usize, &LimitDefinition)| {
            self.limit(limit)
                .map_err(|(path, wrong)| (owner.cloned(), format!("[{at}].{path}"), wrong))
        };
        limits.iter().enumerate().map(limit).collect()
    }

    fn limit(&mut self, limit: &LimitDefinition) -> Result<Limit, LimitErrorAt> {
        let at = |path: &str| path.to_owned();
        match limit {
            LimitDefinition::Units {
                domain,
                entries,
                hits,
            } => {
                check_text(domain, "the domain", "this").map_err(|wrong| (at("domain"), wrong))?;
                if !(1..=MAX_HITS).contains(hits) {
                    return Err((at("hits"), LimitError::Hits { hits: *hits }));
                }
                if entries.is_empty() {
                    return Err((at("entries"), LimitError::NoEntries));
                }
                Ok(Limit::Units {
                    domain: domain.clone(),
                    entries: self.entries(entries)?,
                    hits: *hits,
                })
            }
            LimitDefinition::Concurrency { most, of, entries } => {
                if !(1..=MAX_CONCURRENCY).contains(most) {
                    return Err((at("concurrency"), LimitError::Concurrency { most: *most }));
                }
                Ok(Limit::concurrency(
                    *most,
                    *of,
                    self.queue,
                    &self.entries(entries)?,
                ))
            }
        }
    }

    fn entries(
        &mut self,
        entries: &[(String, String)],
    ) -> Result<Vec<(String, String)>, LimitErrorAt> {
        let count = entries.len();
        if count > MAX_LIMIT_ENTRIES {
            return Err(("entries".to_owned(), LimitError::TooManyEntries { count }));
        }
        let entry = |(at, (key, value)): (usize, &(String, String))| {
            let value = check_text(key, "the key", "this").and_then(|()| self.value(value));
            Ok((
                key.clone(),
                value.map_err(|wrong| (format!("entries[{at}]"), wrong))?,
            ))
        };
        entries.iter().enumerate().map(entry).collect()
    }

    /// The value of a text in a definition: a text that begins with `$.` is a path.
    fn value(&mut self, written: &str) -> Result<String, LimitError> {
        let dollars = written.len() - written.trim_start_matches('$').len();
        let is_special = dollars > 0 && written[dollars..].starts_with('.');
        let (value, subject) = match dollars {
            1 if is_special => (self.find(written)?, written),
            _ if is_special => (written[1..].to_owned(), "this"),
            _ => (written.to_owned(), "this"),
        };
        check_text(&value, "the value", subject)?;
        Ok(value)
    }

    /// The value at a path.
    fn find(&mut self, path: &str) -> Result<String, LimitError> {
        let names = names_of_path(path)?;
        let Some(sources) = &mut self.sources else {
            return Ok("x".to_owned());
        };
        let at = || path.to_owned();
        let found = sources.iter_mut().find_map(|source| source.find(&names));
        let Some(found) = found.map(RawValue::get) else {
            return Err(LimitError::Missing { at: at() });
        };
        let other = |found| Err(LimitError::Value { at: at(), found });
        match found.as_bytes().first() {
            Some(b'"') => serde_json::from_str(found).or_else(|_| other("not a text of Unicode")),
            Some(b'{') => other("an object"),
            Some(b'[') => other("a list"),
            Some(b'n') => other("null"),
            _ => Ok(found.to_owned()),
        }
    }
}

/// The names in a path that begins with `$.`.
fn names_of_path(path: &str) -> Result<Vec<&str>, LimitError> {
    let names = path["$.".len()..].split('.').take(MAX_PATH_NAMES + 1);
    let names: Vec<&str> = names.collect();
    if names.len() > MAX_PATH_NAMES
        || names.contains(&"")
        || path.len() > MAX_LIMIT_TEXT
        || path.contains(char::is_control)
    {
        let text = printable(path);
        return Err(LimitError::Path { text });
    }
    Ok(names)
}

pub(super) fn check_text(text: &str, what: &'static str, subject: &str) -> Result<(), LimitError> {
    let found = match text {
        "" => "empty".to_owned(),
        _ if text.len() > MAX_LIMIT_TEXT => format!("{} bytes long", text.len()),
        _ if text.contains(char::is_control) => format!("{text:?}"),
        _ => return Ok(()),
    };
    Err(LimitError::Text {
        what,
        subject: subject.to_owned(),
        found,
    })
}

/// A lazily parsed JSON value. An object is parsed once, when a value in it is read.
enum LazyJson<'a> {
    /// There are no params or globals.
    Absent,
    Unparsed(&'a RawValue),
    /// The parsed entries; empty if the value is not an object.
    Parsed(&'a RawValue, HashMap<String, LazyJson<'a>>),
}

impl<'a> LazyJson<'a> {
    fn new(json: Option<&'a Json>) -> Self {
        // `Json` always holds one valid value.
        json.and_then(|json| serde_json::from_str(json.text().trim()).ok())
            .map_or(Self::Absent, Self::Unparsed)
    }

    fn find(&mut self, names: &[&str]) -> Option<&'a RawValue> {
        let Some((name, names)) = names.split_first() else {
            return match self {
                Self::Absent => None,
                Self::Unparsed(value) | Self::Parsed(value, _) => Some(value),
            };
        };
        if let Self::Unparsed(value) = self {
            let object: HashMap<String, &RawValue> =
                serde_json::from_str(value.get()).unwrap_or_default();
            let entries = object.into_iter();
            let entries = entries.map(|(name, value)| (name, Self::Unparsed(value)));
            *self = Self::Parsed(value, entries.collect());
        }
        match self {
            Self::Parsed(_, object) => object.get_mut(*name)?.find(names),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
