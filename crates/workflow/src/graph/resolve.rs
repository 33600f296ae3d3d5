//! Fills in the limits of the jobs of a definition: values come from the params of the job or from the globals.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::check::printable;
use super::definition::{Definition, LimitDefinition};
use super::error::{
    GraphError, MAX_CONCURRENCY, MAX_HITS, MAX_LIMIT_ENTRIES, MAX_LIMIT_KEY, MAX_LIMIT_TEXT,
    MAX_LIMITS, WrongLimit, WrongTerms,
};
use super::json::Json;
use super::limited::Limited;
use super::limits::{Limit, Limits};
use super::terms::{Subject, Terms};

/// The most names in a path: what is looked at is read once for each of them.
const MOST_NAMES: usize = 8;

/// The limits of all jobs, those of their queues and handlers in front. None: no job has any.
pub(super) fn limits(
    definition: &Definition,
    terms: &Terms,
) -> Result<Option<Box<Limited>>, GraphError> {
    if terms.have_no_limits() && definition.jobs.iter().all(|job| job.limits.is_empty()) {
        return Ok(None);
    }
    let mut globals = Values::of(definition.globals.as_ref());
    let each = definition.jobs.iter().enumerate().map(|(at, job)| {
        let given: Vec<_> = terms
            .of_job(job)
            .filter(|(_, limits)| !limits.is_empty())
            .collect();
        if job.limits.is_empty() && given.is_empty() {
            return Ok(None);
        }
        let sources = [
            Values::of(job.params.as_ref()),
            std::mem::take(&mut globals),
        ];
        let mut resolver = Resolver {
            queue: &job.queue,
            sources: Sources::Values(sources),
        };
        let resolved = resolver.of_job(&job.limits, &given);
        if let Sources::Values(sources) = resolver.sources {
            [_, globals] = sources;
        }
        resolved.map(Some).map_err(|wrong| match wrong {
            (None, path, wrong) => GraphError::Limit {
                path: format!("jobs[{at}].limits{path}"),
                wrong,
            },
            (Some(subject), place, wrong) => {
                let given = Box::new(WrongTerms {
                    subject,
                    at: place,
                    wrong,
                });
                GraphError::Terms {
                    path: format!("jobs[{at}]"),
                    given,
                }
            }
        })
    });
    Ok(Limited::new(each.collect::<Result<_, _>>()?))
}

/// Checks limits of a queue or a handler. What is at a path is not known yet.
pub(super) fn check(subject: &Subject, limits: &[LimitDefinition]) -> Result<(), GraphError> {
    let mut resolver = Resolver {
        queue: subject.name(),
        sources: Sources::Unknown,
    };
    let checked = resolver.of_job(limits, &[]).map(drop);
    checked.map_err(|(_, path, wrong)| GraphError::Limit {
        path: format!("limits{path}"),
        wrong,
    })
}

/// The limits of one job, and how many of the first are not its own.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) limits: Limits,
    pub(super) given: usize,
}

/// What is wrong, and its path within the limits of the job.
type Wrong = (String, WrongLimit);

struct Resolver<'a> {
    queue: &'a str,
    sources: Sources<'a>,
}

/// Where the values of paths come from.
enum Sources<'a> {
    /// The params of the job, and the globals.
    Values([Values<'a>; 2]),
    /// There is no job yet.
    Unknown,
}

impl Resolver<'_> {
    /// What is wrong with a limit that is not the job's own comes with whose it is.
    fn of_job(
        &mut self,
        own: &[LimitDefinition],
        given: &[(Subject, &[LimitDefinition])],
    ) -> Result<Resolved, (Option<Subject>, String, WrongLimit)> {
        let mine = |(path, wrong)| (None, path, wrong);
        let number_given = given.iter().map(|(_, limits)| limits.len()).sum();
        let count = own.len() + number_given;
        if count > MAX_LIMITS {
            return Err(mine((
                String::new(),
                WrongLimit::TooMany {
                    count,
                    given: number_given,
                },
            )));
        }
        let mut all = Vec::with_capacity(count);
        for (subject, limits) in given {
            let limits = self
                .each(limits)
                .map_err(|(path, wrong)| (Some(subject.clone()), path, wrong))?;
            all.extend(limits);
        }
        let given = if all.is_empty() {
            0
        } else {
            Limits::distinct(all.clone()).len()
        };
        all.extend(self.each(own).map_err(mine)?);
        let limits = Limits::new(all);
        match limits.longest_key() {
            bytes if bytes > MAX_LIMIT_KEY => {
                Err(mine((String::new(), WrongLimit::TooLong { bytes })))
            }
            _ => Ok(Resolved { limits, given }),
        }
    }

    fn each(&mut self, limits: &[LimitDefinition]) -> Result<Vec<Limit>, Wrong> {
        let limit = |(at, limit): (usize, &LimitDefinition)| {
            self.limit(limit)
                .map_err(|(path, wrong)| (format!("[{at}].{path}"), wrong))
        };
        limits.iter().enumerate().map(limit).collect()
    }

    fn limit(&mut self, limit: &LimitDefinition) -> Result<Limit, Wrong> {
        let at = |path: &str| path.to_owned();
        match limit {
            LimitDefinition::Units {
                domain,
                entries,
                hits,
            } => {
                check_text(domain, "the domain", "this").map_err(|wrong| (at("domain"), wrong))?;
                if !(1..=MAX_HITS).contains(hits) {
                    return Err((at("hits"), WrongLimit::Hits { hits: *hits }));
                }
                if entries.is_empty() {
                    return Err((at("entries"), WrongLimit::NoEntries));
                }
                Ok(Limit::Units {
                    domain: domain.clone(),
                    entries: self.entries(entries)?,
                    hits: *hits,
                })
            }
            LimitDefinition::Concurrency { most, of, entries } => {
                if !(1..=MAX_CONCURRENCY).contains(most) {
                    return Err((at("concurrency"), WrongLimit::Concurrency { most: *most }));
                }
                Ok(Limit::concurrency(
                    *most,
                    (*of, self.queue),
                    &self.entries(entries)?,
                ))
            }
        }
    }

    fn entries(&mut self, entries: &[(String, String)]) -> Result<Vec<(String, String)>, Wrong> {
        let count = entries.len();
        if count > MAX_LIMIT_ENTRIES {
            return Err(("entries".to_owned(), WrongLimit::TooManyEntries { count }));
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

    /// The value that is meant by what the author wrote.
    fn value(&mut self, written: &str) -> Result<String, WrongLimit> {
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

    /// What is at a path.
    fn find(&mut self, path: &str) -> Result<String, WrongLimit> {
        let names: Vec<&str> = path["$.".len()..].split('.').take(MOST_NAMES + 1).collect();
        if names.len() > MOST_NAMES
            || names.contains(&"")
            || path.len() > MAX_LIMIT_TEXT
            || path.contains(char::is_control)
        {
            return Err(WrongLimit::Path {
                text: printable(path),
            });
        }
        let missing = || WrongLimit::Missing {
            at: path.to_owned(),
        };
        let sources = match &mut self.sources {
            Sources::Values(sources) => sources,
            Sources::Unknown => return Ok("x".to_owned()),
        };
        let found = sources
            .iter_mut()
            .find_map(|source| source.find(&names))
            .ok_or_else(missing)?
            .get();
        let other = |found| {
            Err(WrongLimit::Value {
                at: path.to_owned(),
                found,
            })
        };
        match found.as_bytes().first() {
            Some(b'"') => serde_json::from_str(found).or_else(|_| other("not a text of Unicode")),
            Some(b'{') => other("an object"),
            Some(b'[') => other("a list"),
            Some(b'n') => other("null"),
            _ => Ok(found.to_owned()),
        }
    }
}

pub(super) fn check_text(text: &str, what: &'static str, subject: &str) -> Result<(), WrongLimit> {
    let found = match text {
        "" => "empty".to_owned(),
        _ if text.len() > MAX_LIMIT_TEXT => format!("{} bytes long", text.len()),
        _ if text.contains(char::is_control) => format!("{text:?}"),
        _ => return Ok(()),
    };
    Err(WrongLimit::Text {
        what,
        subject: subject.to_owned(),
        found,
    })
}

/// A JSON value in which values are looked for. An object is read when something in it is asked for, and once.
#[derive(Default)]
enum Values<'a> {
    /// There are no params or globals.
    #[default]
    None,
    Unread(&'a RawValue),
    /// Nothing is in it if it is no object.
    Read(&'a RawValue, HashMap<String, Values<'a>>),
}

impl<'a> Values<'a> {
    fn of(json: Option<&'a Json>) -> Self {
        // It is one JSON value, or it would not be here.
        json.and_then(|json| serde_json::from_str(json.text().trim()).ok())
            .map_or(Self::None, Self::Unread)
    }

    fn find(&mut self, names: &[&str]) -> Option<&'a RawValue> {
        let Some((name, names)) = names.split_first() else {
            return match self {
                Self::None => None,
                Self::Unread(value) | Self::Read(value, _) => Some(value),
            };
        };
        if let Self::Unread(value) = self {
            let object: HashMap<String, &RawValue> =
                serde_json::from_str(value.get()).unwrap_or_default();
            *self = Self::Read(
                value,
                object
                    .into_iter()
                    .map(|(name, value)| (name, Self::Unread(value)))
                    .collect(),
            );
        }
        match self {
            Self::Read(_, object) => object.get_mut(*name)?.find(names),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::graph::definition::{JobDefinition, Scope};
    use crate::id::JobIndex;

    fn units(entries: &[(&str, &str)]) -> LimitDefinition {
        let entries = entries
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        LimitDefinition::Units {
            domain: "vendor".to_owned(),
            entries,
            hits: 1,
        }
    }

    fn build(
        params: Option<&str>,
        globals: Option<&str>,
        limits: Vec<LimitDefinition>,
    ) -> Result<Graph, GraphError> {
        let json = |text: Option<&str>| text.map(|text| Json::parse(text).unwrap());
        let job = JobDefinition {
            params: json(params),
            limits,
            ..JobDefinition::new("a", "h")
        };
        let jobs = vec![JobDefinition::new("before", "h"), job];
        Graph::build(Definition {
            name: "w".to_owned(),
            jobs,
            globals: json(globals),
            ..Definition::default()
        })
    }

    const PARAMS: &str = r#" {"tenant":"acme","n":1.10,"big":123456789012345678901234567890,"yes":true,"a":{"b":{"c":"deep"}},
        "nothing":null,"list":["x"],"empty":"","tab":"\t","odd":"\ud800","twice":1,"twice":"last"} "#;
    const GLOBALS: &str = r#"{"tenant":"other","region":"eu","a":{"d":"from globals"}}"#;

    fn value(written: &str) -> Result<String, String> {
        let graph = build(
            Some(PARAMS),
            Some(GLOBALS),
            vec![units(&[("key", written)])],
        )
        .map_err(|error| error.to_string())?;
        assert_eq!(graph.limits(JobIndex(0)), None);
        match &graph.limits(JobIndex(1)).unwrap().each()[0] {
            Limit::Units { entries, .. } => Ok(entries[0].1.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_come_from_params_then_from_globals() {
        for (written, expected) in [
            ("acme", "acme"),
            ("$.tenant", "acme"),
            ("$.region", "eu"),
            ("$.n", "1.10"),
            ("$.big", "123456789012345678901234567890"),
            ("$.yes", "true"),
            ("$.a.b.c", "deep"),
            ("$.a.d", "from globals"),
            ("$.twice", "last"),
            ("$$.tenant", "$.tenant"),
            ("$$$.tenant", "$$.tenant"),
            ("$", "$"),
            ("$$", "$$"),
            ("$5", "$5"),
            ("a$.b", "a$.b"),
        ] {
            assert_eq!(value(written).as_deref(), Ok(expected), "{written}");
        }
    }

    #[test]
    fn what_is_no_value_is_refused_with_its_place() {
        const TEXT: &str = "must have 1 to 256 bytes and no control characters, but";
        let missing = |at: &str| {
            format!(
                "neither the params of the job nor the globals have {at}: give it a value there, or write one here"
            )
        };
        let kind = |at: &str, found: &str| {
            format!("{at} is {found}, expected a text, a number, true or false")
        };
        let path = |text: &str| {
            format!(
                "'{text}' is not a path such as $.tenant or $.order.customer: write '${text}' if it is meant as text"
            )
        };
        for (written, expected) in [
            ("$.nobody", missing("$.nobody")),
            ("$.tenant.name", missing("$.tenant.name")),
            ("$.list.x", missing("$.list.x")),
            ("$.nothing", kind("$.nothing", "null")),
            ("$.list", kind("$.list", "a list")),
            ("$.a", kind("$.a", "an object")),
            ("$.a.b", kind("$.a.b", "an object")),
            ("$.odd", kind("$.odd", "not a text of Unicode")),
            ("$.empty", format!("the value {TEXT} $.empty is empty")),
            ("$.tab", format!("the value {TEXT} $.tab is \"\\t\"")),
            ("", format!("the value {TEXT} this is empty")),
            ("a\nb", format!("the value {TEXT} this is \"a\\nb\"")),
            (
                &*"x".repeat(257),
                format!("the value {TEXT} this is 257 bytes long"),
            ),
            ("$.", path("$.")),
            ("$.a..b", path("$.a..b")),
            ("$.a.b.c.d.e.f.g.h.i", path("$.a.b.c.d.e.f.g.h.i")),
            ("$.\u{1}", path("$.\u{fffd}")),
        ] {
            assert_eq!(
                value(written),
                Err(format!("jobs[1].limits[0].entries[0]: {expected}")),
                "{written}"
            );
        }
        let error = build(
            None,
            None,
            vec![units(&[("a", "b")]), units(&[("a", "b"), ("k", "$.t")])],
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("jobs[1].limits[1].entries[1]: {}", missing("$.t"))
        );
    }

    #[test]
    fn an_object_that_was_read_is_still_an_object() {
        let limit = units(&[("one", "$.a.b.c"), ("two", "$.a.b")]);
        let error = build(Some(PARAMS), None, vec![limit])
            .unwrap_err()
            .to_string();
        assert!(error.contains("entries[1]: $.a.b is an object"), "{error}");
    }

    #[test]
    fn limits_have_bounds() {
        let check = |limits: Vec<LimitDefinition>, expected: &str| {
            let found = build(None, None, limits)
                .map(drop)
                .map_err(|error| error.to_string());
            assert_eq!(found, Err(format!("jobs[1].limits{expected}")));
        };
        let of = |domain: &str, hits| LimitDefinition::Units {
            domain: domain.to_owned(),
            entries: vec![("k".to_owned(), "v".to_owned())],
            hits,
        };
        let running = |most| LimitDefinition::Concurrency {
            most,
            of: Scope::All,
            entries: Vec::new(),
        };
        let long = "x".repeat(256);
        check(
            vec![of("d", 1); 5],
            ": 5 limits, more than 4: leave some out",
        );
        check(
            vec![of("", 1)],
            "[0].domain: the domain must have 1 to 256 bytes and no control characters, but this is empty",
        );
        check(
            vec![units(&[("", "v")])],
            "[0].entries[0]: the key must have 1 to 256 bytes and no control characters, but this is empty",
        );
        check(vec![of("d", 0)], "[0].hits: 0 units, expected 1 to 1000000");
        check(
            vec![of("d", 1_000_001)],
            "[0].hits: 1000001 units, expected 1 to 1000000",
        );
        check(
            vec![units(&[])],
            "[0].entries: no entries: write at least one, as in the rule of the domain",
        );
        check(
            vec![units(&[("k", "v"); 9])],
            "[0].entries: 9 entries, more than 8: leave some out",
        );
        for most in [0, 100_001] {
            let rest =
                "jobs at the same time, expected 1 to 100000: pause the queue if none is to run";
            check(
                vec![running(1), running(most)],
                &format!("[1].concurrency: {most} {rest}"),
            );
        }
        let rest = "more than 1024: use shorter values";
        check(
            vec![units(&[("k", &*long); 4])],
            &format!(": the limits of the job have 1066 bytes together, {rest}"),
        );
        let most = units(&[(&*long, &*long), ("k", &*long), ("k", "v")]);
        assert!(
            build(
                None,
                None,
                vec![most, of("d", 1_000_000), running(1), running(100_000)]
            )
            .is_ok()
        );
    }

    #[test]
    fn jobs_with_equal_limits_share_them() {
        let job = |name: &str, tenant: &str| JobDefinition {
            params: Some(Json::parse(format!(r#"{{"tenant":"{tenant}"}}"#)).unwrap()),
            limits: vec![units(&[("tenant", "$.tenant")])],
            ..JobDefinition::new(name, "h")
        };
        let jobs = vec![
            job("a", "x"),
            JobDefinition::new("b", "h"),
            job("c", "y"),
            job("d", "x"),
        ];
        let graph = Graph::build(Definition {
            name: "w".to_owned(),
            jobs,
            ..Definition::default()
        })
        .unwrap();
        let key = |job| graph.limits(JobIndex(job)).map(|limits| limits.key());
        let [x, y] = ["x", "y"].map(|tenant| format!(r#"[["vendor",1,"tenant","{tenant}"]]"#));
        assert_eq!(
            [0, 1, 2, 3, 4].map(key),
            [Some(&*x), None, Some(&y), Some(&x), None]
        );
        assert!(std::ptr::eq(
            graph.limits(JobIndex(0)).unwrap(),
            graph.limits(JobIndex(3)).unwrap()
        ));
    }

    /// The globals are read once however many paths lead into them.
    #[test]
    fn a_hundred_thousand_paths_into_large_globals_take_linear_work() {
        const JOBS: usize = 100_000;
        let all: Vec<String> = (0..JOBS).map(|at| format!("\"k{at}\":{at}")).collect();
        let globals = Json::parse(format!("{{\"a\":{{{}}}}}", all.join(","))).unwrap();
        let job = |at: usize| JobDefinition {
            limits: vec![units(&[("key", &format!("$.a.k{at}"))])],
            ..JobDefinition::new(at.to_string(), "h")
        };
        let jobs = (0..JOBS).map(job).collect();
        let definition = Definition {
            name: "w".to_owned(),
            jobs,
            globals: Some(globals),
            ..Definition::default()
        };
        let graph = Graph::build(definition).unwrap();
        let last = graph.limits(JobIndex(JOBS as u32 - 1)).unwrap();
        assert_eq!(last.key(), r#"[["vendor",1,"key","99999"]]"#);
    }
}
