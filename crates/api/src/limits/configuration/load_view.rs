//! JSON view of the load of the configuration: its source, and its errors.

use serde::Serialize;
use tidegate_ratelimit::Configuration;
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::time::Rfc3339;
use crate::state::config_status::{ConfigurationSource, Loads, Mistake};

/// Where the configuration comes from, what is in force, and what is wrong.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = ConfigurationLoad))]
pub(crate) struct LoadShown<'a> {
    /// The kind of place that it comes from.
    source: &'static str,
    /// The folder, or the address of the management server.
    place: &'a str,
    /// When this server began to count.
    counting_since: Rfc3339,
    /// When the configuration that is in force was loaded; null before there is one.
    #[cfg_attr(test, schema(required))]
    loaded_at: Option<Rfc3339>,
    /// How many files or resources it has.
    files: usize,
    /// How many domains it has.
    domains: usize,
    /// How many descriptors, at all levels.
    descriptors: usize,
    /// How many limits.
    limits: usize,
    /// The latest load, when it was refused: the configuration that is in force is an older one. Null when nothing is wrong.
    #[cfg_attr(test, schema(required))]
    refused: Option<RefusedShown<'a>>,
    /// Files and folders that could not be read. Their last texts stay in use.
    unreadable: Vec<MistakeShown<'a>>,
}

/// A load that was refused. The configuration before it stays in force.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = RefusedLoad))]
struct RefusedShown<'a> {
    at: Rfc3339,
    /// The first mistakes, by file and line.
    mistakes: Vec<MistakeShown<'a>>,
    /// How many others there are.
    more: usize,
}

/// A mistake in the configuration, and where it is.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = ConfigurationMistake))]
struct MistakeShown<'a> {
    /// The path of the file, or the resource; empty when it is about all of them.
    file: &'a str,
    /// Left out when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    /// In characters. Left out when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u32>,
    /// The path to the value, such as `descriptors[0].rate_limit.unit`. Left out when it is about all of the file.
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'a str,
    /// Explanation of the mistake.
    text: &'a str,
    /// How to correct it. Left out when that is not known.
    #[serde(skip_serializing_if = "str::is_empty")]
    hint: &'a str,
}

/// Words of the sources of a configuration.
#[cfg(test)]
pub(crate) const SOURCES: [&str; 3] = [
    source(ConfigurationSource::BuiltIn),
    source(ConfigurationSource::Files),
    source(ConfigurationSource::ManagementServer),
];

const fn source(source: ConfigurationSource) -> &'static str {
    match source {
        ConfigurationSource::BuiltIn => "built_in",
        ConfigurationSource::Files => "files",
        ConfigurationSource::ManagementServer => "management_server",
    }
}

impl<'a> LoadShown<'a> {
    pub(crate) fn new(loads: &'a Loads, configuration: Option<&Configuration>) -> Self {
        let (descriptors, limits) = configuration.map(Configuration::counts).unwrap_or_default();
        Self {
            source: source(loads.source),
            place: &loads.place,
            counting_since: loads.counting_since.into(),
            loaded_at: loads.active.map(|in_force| in_force.at.into()),
            files: loads.active.map_or(0, |in_force| in_force.sources),
            domains: configuration.map_or(0, Configuration::domain_count),
            descriptors,
            limits,
            refused: loads.refused.as_ref().map(|refused| RefusedShown {
                at: refused.at.into(),
                mistakes: MistakeShown::list_from(&refused.mistakes, loads),
                more: refused.more,
            }),
            unreadable: MistakeShown::list_from(&loads.unreadable, loads),
        }
    }
}

impl<'a> MistakeShown<'a> {
    fn list_from(mistakes: &'a [Mistake], loads: &'a Loads) -> Vec<Self> {
        let known = |number| Some(number).filter(|number| *number > 0);
        let shown = |mistake: &'a Mistake| Self {
            file: loads.path_of(&mistake.file),
            line: known(mistake.line),
            column: known(mistake.column),
            path: &mistake.path,
            text: &mistake.text,
            hint: &mistake.hint,
        };
        mistakes.iter().map(shown).collect()
    }
}
