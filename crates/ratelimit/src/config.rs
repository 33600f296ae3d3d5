//! Configuration: reads files of limits, and holds the limits of all domains.
//!
//! A file is parsed into nodes (`tidegate_yaml`, with the scalars of `scalar`), and then passed
//! over three times: for unknown keys (`keys`), for values of the wrong type (`decode`), and for
//! invalid limits (`build`).

mod build;
mod decode;
mod domains;
mod error;
mod keys;
mod lookup;
mod problem;
mod resource;
mod scalar;

pub use domains::Domain;
pub use error::ConfigError;
pub use lookup::{DefinedLimit, LimitLookup};
pub use resource::{Resource, ResourceDescriptor, ResourceLimit};

use std::fmt::Write as _;

use hashbrown::HashMap;

use crate::model::Entry;
use crate::tree::{Level, Limit, Rate};
use decode::{Field, Metadata, ParsedDescriptor, ParsedFile, ParsedRateLimit};
use domains::Domains;
use error::{Path, Report};
use scalar::{Content, Pair, ScalarValue, Yaml11};

/// Maximum number of errors that are reported for resources. After a correction, the next load
/// reports the rest.
const MAX_RESOURCE_ERRORS: usize = 100;

/// Maximum nesting of lists and maps in a file. A descriptor needs two levels, so 100 levels of
/// descriptors are allowed.
const MAX_DEPTH: usize = 200;

/// One configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The name, such as `config.basic.yaml`. Messages show it, and files are loaded in the order
    /// of their names.
    pub name: String,
    /// The file's bytes.
    pub text: Vec<u8>,
}

/// Treatment of a second file of the same domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SameDomain {
    /// Report an error.
    #[default]
    Refuse,
    /// Add its descriptors to those of the first.
    Merge,
}

/// The limits of all domains.
#[derive(Debug)]
pub struct Configuration {
    domains: Domains,
    /// Numbers of descriptors and of limits in all domains.
    counts: (usize, usize),
}

impl Configuration {
    /// Reads all files, in the order of their names.
    ///
    /// # Errors
    /// All errors of all files, sorted by file and line. A file that is not YAML has one error. An
    /// error that only follows from another one, such as a misspelled key, is not reported.
    pub fn load(sources: &[Source], same_domain: SameDomain) -> Result<Self, Vec<ConfigError>> {
        let mut sources: Vec<&Source> = sources.iter().collect();
        sources.sort_by_key(|source| &source.name);
        let mut domains = Domains::default();
        let mut errors = Vec::new();
        for source in sources {
            errors.extend(load_file(source, same_domain, &mut domains));
        }
        if errors.is_empty() {
            Ok(Self::with_slots(domains))
        } else {
            Err(errors)
        }
    }

    /// Loads resources in place of files, in the order of their names. Resources and files with the
    /// same content are equivalent.
    ///
    /// # Errors
    /// Errors as in [`Self::load`], without lines. At most 100 of them; resources after these are
    /// not checked.
    pub fn from_resources(
        mut resources: Vec<Resource>,
        same_domain: SameDomain,
    ) -> Result<Self, Vec<ConfigError>> {
        resources.sort_by(|a, b| a.name.cmp(&b.name));
        let mut domains = Domains::default();
        let mut errors = Vec::new();
        for mut resource in resources {
            let name = std::mem::take(&mut resource.name);
            let mut report = Report::new(&name);
            build::file(resource.into(), same_domain, &mut domains, &mut report);
            errors.extend(report.into_errors());
            if errors.len() >= MAX_RESOURCE_ERRORS {
                errors.truncate(MAX_RESOURCE_ERRORS);
                break;
            }
        }
        if errors.is_empty() {
            Ok(Self::with_slots(domains))
        } else {
            Err(errors)
        }
    }

    /// Creates a configuration whose slots are the indices of the stats keys in their order.
    fn with_slots(domains: Domains) -> Self {
        let add = |(descriptors, limits), level: &Level| {
            (descriptors + level.descriptors(), limits + level.limits())
        };
        let counts = domains.levels().fold((0, 0), add);
        let mut configuration = Self { domains, counts };
        let keys = configuration.stats_keys().map(Box::from).zip(0..);
        let slots: HashMap<Box<str>, u32> = keys.collect();
        configuration.assign_slots(|key| slots[key]);
        configuration
    }

    /// Sets the slot of each limit, under which [`crate::LimitDelta`] reports it, to the result of
    /// `slot_of` for its stats key. The server uses slots as indices and needs no look-up of names.
    /// Without this call, a slot is the index of the key in [`Self::stats_keys`].
    pub fn assign_slots(&mut self, slot_of: impl Fn(&str) -> u32) {
        for level in self.domains.levels_mut() {
            level.change_limits(&mut |limit| limit.slot = slot_of(&limit.stats_key));
        }
    }

    /// Returns the number of domains.
    #[must_use]
    pub fn domain_count(&self) -> usize {
        self.domains.len()
    }

    /// Returns the numbers of descriptors and of limits.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        self.counts
    }

    /// Returns the text of `/rlconfig`: one line per configured limit, sorted.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut text = String::new();
        for limit in self.limits() {
            let (unit, requests_per_unit) = match limit.rate {
                Rate::PerUnit {
                    requests_per_unit,
                    unit,
                } => (unit.name(), requests_per_unit),
                Rate::Unlimited { requests_per_unit } => ("UNKNOWN", requests_per_unit),
            };
            let Limit {
                stats_key,
                shadow_mode,
                quota_mode,
                ..
            } = limit;
            let _ = writeln!(
                text,
                "{stats_key}: unit={unit} requests_per_unit={requests_per_unit}, shadow_mode: {shadow_mode}, \
                 quota_mode: {quota_mode}"
            );
        }
        text
    }

    /// Returns the stats keys of all configured limits, sorted.
    pub fn stats_keys(&self) -> impl Iterator<Item = &str> {
        self.limits().into_iter().map(|limit| &*limit.stats_key)
    }

    /// Returns all configured limits, domain by domain in the order of the files.
    pub fn limits_in_order(&self) -> impl Iterator<Item = &Limit> {
        self.domains(0).flat_map(|(_, domain)| {
            let mut limits = Vec::new();
            domain.level.collect_limits(&mut limits);
            limits
        })
    }

    /// Returns a domain, and the entries of a descriptor that its first limit applies to. `None` if
    /// there is no limit. Domains are tried in the order of their names.
    #[must_use]
    pub fn example(&self) -> Option<(String, Vec<Entry>)> {
        let mut domains: Vec<_> = self.domains.from(0).collect();
        domains.sort_unstable_by_key(|(name, _)| *name);
        domains
            .into_iter()
            .find_map(|(name, domain)| Some((name.to_owned(), domain.level.example()?)))
    }

    /// Returns the domains with their names from index `start` on, in the order of the files that
    /// name them first.
    pub fn domains(&self, start: usize) -> impl ExactSizeIterator<Item = (&str, &Domain)> {
        self.domains.from(start)
    }

    /// Returns the domain of this name.
    #[must_use]
    pub fn domain_named(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// Returns the tree of a domain.
    pub(crate) fn domain(&self, name: &str) -> Option<&Level> {
        self.domains.get(name).map(|domain| &domain.level)
    }

    fn limits(&self) -> Vec<&Limit> {
        let mut limits = Vec::new();
        for level in self.domains.levels() {
            level.collect_limits(&mut limits);
        }
        limits.sort_by_key(|limit| &limit.stats_key);
        limits
    }
}

/// Adds one file to the domains and returns its errors.
fn load_file(source: &Source, same_domain: SameDomain, domains: &mut Domains) -> Vec<ConfigError> {
    let mut report = Report::new(&source.name);
    match tidegate_yaml::parse::<Yaml11>(&source.text, MAX_DEPTH).map(|document| document.root) {
        Err(error) => report.add(error.at, &Path::Top, error.problem.into()),
        Ok(None) => load_pairs(&[], same_domain, domains, &mut report),
        Ok(Some(root)) => match &*root.content {
            Content::Map(pairs) => load_pairs(pairs, same_domain, domains, &mut report),
            Content::Scalar(scalar) if scalar.value == ScalarValue::Null => {
                load_pairs(&[], same_domain, domains, &mut report);
            }
            _ => decode::refuse_top(&root, &mut report),
        },
    }
    report.into_errors()
}

/// Checks the map at the top of a file, and adds its limits to the domains.
fn load_pairs(
    pairs: &[Pair],
    same_domain: SameDomain,
    domains: &mut Domains,
    report: &mut Report<'_>,
) {
    keys::check(pairs, &Path::Top, report);
    report.next_pass();
    let file = decode::file(pairs, report);
    report.next_pass();
    build::file(file, same_domain, domains, report);
}
