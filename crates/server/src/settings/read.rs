//! Parses variables one by one, and reports names that are not settings.

mod near_miss;
mod service_links;

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use tidegate_workflow::RetentionDefaults;

use super::program::Program;
use super::table::problem::Problem;
use super::table::value::{SettingValue, VariableKind, with_unit};
use super::table::{Support, Variable, variables};
use crate::tls::StoreTls;
use near_miss::{closest, near_miss};
use service_links::{is_service_link, services};

/// Prefix of Tidegate's own settings. An unknown name with this prefix is a mistake.
const PREFIX: &str = "TIDEGATE_";
/// Prefix of the variables of a rule for DogStatsD. The operator chooses the rest.
pub(super) const MOGRIFIERS: &str = "DOG_STATSD_MOGRIFIER_";

/// Names that the documentation of the reference describes, and that it does not read.
const README_ONLY: [&str; 2] = [
    "REDIS_POOL_ON_EMPTY_WAIT_DURATION",
    "REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION",
];

/// Values of all variables, and the mistakes so far. A variable with a mistake has its default.
#[derive(Debug, Default)]
pub(super) struct Values {
    values: HashMap<&'static str, SettingValue>,
    pub(super) given: HashSet<&'static str>,
    pub(super) problems: Vec<Problem>,
    pub(crate) warnings: Vec<String>,
    /// TLS for servers of stores, as far as it was built.
    pub(super) stores_tls: Vec<StoreTls>,
    /// Variables of rules for DogStatsD that no rule has used yet.
    pub(super) mogrifiers: HashMap<String, String>,
}

/// The environment of the process, with the defaults of the program. Bytes that are not Unicode are
/// replaced.
pub(crate) fn environment() -> HashMap<String, String> {
    let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    #[expect(
        clippy::disallowed_methods,
        reason = "the one reader of the environment"
    )]
    let mut given = std::env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .collect();
    Program::started().add_defaults(&mut given);
    given
}

impl Values {
    pub(crate) fn read(given: &HashMap<String, String>) -> Self {
        let mut read = Self::default();
        for variable in variables() {
            let default = variable
                .kind
                .read(variable.default)
                .expect("defaults are of their kind");
            let value = given
                .get(variable.name)
                .and_then(|text| read.parse_variable(variable, text));
            read.values.insert(variable.name, value.unwrap_or(default));
        }
        let mut names: Vec<_> = given.keys().map(String::as_str).collect();
        names.sort_unstable();
        names.retain(|name| {
            let is_rule = is_mogrifier(name) && !read.values.contains_key(name);
            if is_rule {
                read.mogrifiers
                    .insert((*name).to_owned(), given[*name].clone());
            }
            !is_rule
        });
        let (links, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| {
            !read.values.contains_key(name) && is_service_link(name, &given[*name])
        });
        names.into_iter().for_each(|name| read.unknown(name));
        if let [first, more @ ..] = &links[..] {
            let others = if more.is_empty() {
                String::new()
            } else {
                format!(" and {} more", more.len())
            };
            read.warnings.push(format!(
                "{first}{others} had no effect: Kubernetes sets such variables for a Service named {}; \
                 `enableServiceLinks: false` leaves them out",
                services(&links)
            ));
        }
        read
    }

    fn parse_variable(&mut self, variable: &'static Variable, text: &str) -> Option<SettingValue> {
        self.given.insert(variable.name);
        let Some(value) = variable.kind.read(text) else {
            self.problem(
                variable.name,
                text,
                format!("expected {}", variable.kind.expected()),
            );
            return None;
        };
        match variable.support {
            Support::Refused { but, why }
                if !text.is_empty() && Some(&value) != variable.kind.read(but).as_ref() =>
            {
                let but = if but.is_empty() {
                    "leave it unset".to_owned()
                } else {
                    format!("expected {but}")
                };
                self.problem(variable.name, text, format!("{why}; {but}"));
            }
            Support::Warned { why }
                if Some(&value) != variable.kind.read(variable.default).as_ref() =>
            {
                let shown = variable.kind.masked(text);
                self.warnings
                    .push(format!("{}={shown} has no effect: {why}", variable.name));
            }
            _ => {}
        }
        Some(value)
    }

    /// Reports an unknown name with our prefix, and warns of a name that looks like a misspelt
    /// setting.
    fn unknown(&mut self, name: &str) {
        if name.starts_with(PREFIX) {
            if !self.values.contains_key(name) {
                let meant = closest(name, PREFIX)
                    .map(|meant| format!("; did you mean {meant}?"))
                    .unwrap_or_default();
                let reason = format!("there is no such setting{meant}");
                self.problems.push(Problem {
                    variable: name.to_owned(),
                    value: None,
                    reason,
                });
            }
            return;
        }
        if README_ONLY.contains(&name) {
            self.warnings.push(format!(
                "{name} has no effect: the README of envoyproxy/ratelimit has it, and no program"
            ));
            return;
        }
        // If the correct name is set as well, the other one belongs to another program.
        if let Some(meant) = near_miss(name).filter(|meant| !self.given.contains(meant)) {
            self.warnings.push(format!(
                "{name} is not a setting and has no effect; did you mean {meant}?"
            ));
        }
    }

    pub(super) fn problem(&mut self, name: &'static str, text: &str, reason: String) {
        let kind = variables()
            .find(|variable| variable.name == name)
            .expect("only names of the table are read")
            .kind;
        self.problems.push(Problem {
            variable: name.to_owned(),
            value: Some(kind.masked(text)),
            reason,
        });
    }
}

/// Whether a name belongs to a rule for DogStatsD, in either of its two spellings.
fn is_mogrifier(name: &str) -> bool {
    let singular = name.strip_prefix(MOGRIFIERS);
    singular
        .or_else(|| name.strip_prefix("DOG_STATSD_MOGRIFIERS_"))
        .is_some()
}

impl Values {
    /// Whether a variable has the value that it would have without being set.
    pub(super) fn is_default(&self, name: &str) -> bool {
        let variable = variables()
            .find(|variable| variable.name == name)
            .expect("only names of the table are read");
        variable.kind.read(variable.default).as_ref() == Some(self.get(name))
    }
}

// The table defines the kind of each variable. Reading another kind is a bug that the first start
// shows.
impl Values {
    fn get(&self, name: &str) -> &SettingValue {
        self.values
            .get(name)
            .unwrap_or_else(|| unreachable!("{name} is not in the table"))
    }

    pub(super) fn text(&self, name: &str) -> String {
        match self.get(name) {
            SettingValue::Text(text) => text.clone(),
            other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(super) fn boolean(&self, name: &str) -> bool {
        *self.get(name) == SettingValue::Boolean(true)
    }

    /// `yes` if the variable is true, otherwise `no`.
    pub(super) fn either<T>(&self, name: &str, yes: T, no: T) -> T {
        if self.boolean(name) { yes } else { no }
    }

    /// A number from 0 to 1.
    pub(super) fn fraction(&mut self, name: &'static str) -> f64 {
        match *self.get(name) {
            SettingValue::Float(number) if (0.0..=1.0).contains(&number) => number,
            SettingValue::Float(number) => {
                self.problem(
                    name,
                    &number.to_string(),
                    "expected a number from 0 to 1".to_owned(),
                );
                0.0
            }
            ref other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(super) fn integer(&mut self, name: &'static str, range: RangeInclusive<i64>) -> i64 {
        match *self.get(name) {
            SettingValue::Integer(number) if range.contains(&number) => number,
            SettingValue::Integer(number) => {
                let kind = variables()
                    .find(|variable| variable.name == name)
                    .map(|variable| variable.kind);
                let number_text = |number: i64| {
                    if matches!(kind, Some(VariableKind::Bytes)) {
                        with_unit(number)
                    } else {
                        number.to_string()
                    }
                };
                let low = number_text(*range.start());
                let high = number_text(*range.end());
                let reason = if *range.end() == i64::MAX {
                    format!("expected {low} or more")
                } else {
                    format!("expected a number from {low} to {high}")
                };
                self.problem(name, &number_text(number), reason);
                *range.start()
            }
            ref other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(super) fn duration(&self, name: &str) -> Duration {
        match self.get(name) {
            SettingValue::Duration(duration) => *duration,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(super) fn positive_duration(&mut self, name: &'static str) -> Duration {
        let duration = self.duration(name);
        if duration.is_zero() {
            self.problem(name, "0", "expected more than 0".to_owned());
        }
        duration
    }

    pub(super) fn duration_unless_zero(&self, name: &str) -> Option<Duration> {
        Some(self.duration(name)).filter(|duration| !duration.is_zero())
    }

    pub(super) fn retention(&self, name: &str) -> RetentionDefaults {
        match self.get(name) {
            SettingValue::Retention(defaults) => *defaults,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(super) fn list(&self, name: &str) -> Vec<String> {
        match self.get(name) {
            SettingValue::List(words) => words.clone(),
            other => unreachable!("{name} is {other:?}"),
        }
    }

    pub(crate) fn map(&self, name: &str) -> Vec<(String, String)> {
        match self.get(name) {
            SettingValue::Map(pairs) => pairs.clone(),
            other => unreachable!("{name} is {other:?}"),
        }
    }
}
