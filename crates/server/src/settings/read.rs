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
use crate::tls::{CertificateFileError, NamedFile, StoreTls};
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
    let mut given = process_environment();
    Program::started().add_defaults(&mut given);
    given
}

/// The environment of the process.
pub(crate) fn process_environment() -> HashMap<String, String> {
    let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    #[expect(
        clippy::disallowed_methods,
        reason = "the one reader of the environment"
    )]
    let given = std::env::vars_os();
    given
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// The setting that an unknown name was probably meant to be.
pub(crate) fn suggestion(name: &str) -> Option<&'static str> {
    near_miss(name).or_else(|| closest(name, PREFIX))
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
        read.other_names(given);
        read
    }

    /// Keeps the variables of rules for DogStatsD, and reports other names that are not in the
    /// table.
    fn other_names(&mut self, given: &HashMap<String, String>) {
        let mut unknown: Vec<(&str, &String)> = given
            .iter()
            .map(|(name, text)| (name.as_str(), text))
            .filter(|(name, _)| !self.values.contains_key(name))
            .collect();
        unknown.sort_unstable();
        let mut links = Vec::new();
        for (name, text) in unknown {
            if is_mogrifier(name) {
                self.mogrifiers.insert(name.to_owned(), text.clone());
            } else if is_service_link(name, text) {
                links.push(name);
            } else {
                self.unknown(name);
            }
        }
        if let [first, more @ ..] = &links[..] {
            let others = if more.is_empty() {
                String::new()
            } else {
                format!(" and {} more", more.len())
            };
            self.warnings.push(format!(
                "{first}{others} had no effect: Kubernetes sets such variables for a Service named {}; \
                 `enableServiceLinks: false` leaves them out",
                services(&links)
            ));
        }
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
            let meant = closest(name, PREFIX)
                .map(|meant| format!("; did you mean {meant}?"))
                .unwrap_or_default();
            return self.problem_of(name, None, format!("there is no such setting{meant}"));
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

    /// Reports a mistake in a variable of the table with the value `text`.
    pub(super) fn problem(&mut self, name: &str, text: &str, reason: impl Into<String>) {
        self.problem_of(name, Some(variable(name).kind.masked(text)), reason);
    }

    /// Reports a mistake in any variable. `value` is printed as it is.
    pub(super) fn problem_of(
        &mut self,
        name: &str,
        value: Option<String>,
        reason: impl Into<String>,
    ) {
        self.problems.push(Problem {
            variable: name.to_owned(),
            value,
            reason: reason.into(),
        });
    }

    /// The parsed value, or None with a report of the mistake in `text`.
    pub(super) fn reported<T>(
        &mut self,
        name: &str,
        text: &str,
        parsed: Result<T, impl Into<String>>,
    ) -> Option<T> {
        parsed
            .map_err(|reason| self.problem(name, text, reason))
            .ok()
    }

    /// Reports mistakes in files.
    pub(super) fn file_errors(&mut self, errors: impl IntoIterator<Item = CertificateFileError>) {
        for CertificateFileError { file, reason } in errors {
            self.problem(file.variable, &file.path.to_string_lossy(), reason);
        }
    }
}

/// The row of a variable.
pub(super) fn variable(name: &str) -> &'static Variable {
    variables()
        .find(|variable| variable.name == name)
        .expect("only names of the table are read")
}

/// Whether a name belongs to a rule for DogStatsD, in either of its two spellings.
fn is_mogrifier(name: &str) -> bool {
    name.starts_with(MOGRIFIERS) || name.starts_with("DOG_STATSD_MOGRIFIERS_")
}

/// Defines a getter for each kind of value. The table defines the kind of each variable; reading
/// another kind is a bug that the first start shows.
macro_rules! getters {
    ($($getter:ident: $value:ident($type:ty);)+) => {
        $(pub(super) fn $getter(&self, name: &str) -> $type {
            match self.get(name) {
                SettingValue::$value(value) => value.to_owned(),
                other => unreachable!("{name} is {other:?}"),
            }
        })+
    };
}

impl Values {
    getters! {
        text: Text(String);
        boolean: Boolean(bool);
        number: Integer(i64);
        float: Float(f64);
        duration: Duration(Duration);
        retention: Retention(RetentionDefaults);
        list: List(Vec<String>);
        map: Map(Vec<(String, String)>);
    }

    fn get(&self, name: &str) -> &SettingValue {
        self.values
            .get(name)
            .unwrap_or_else(|| unreachable!("{name} is not in the table"))
    }

    /// Whether a variable has the value that it would have without being set.
    pub(super) fn is_default(&self, name: &str) -> bool {
        let variable = variable(name);
        variable.kind.read(variable.default).as_ref() == Some(self.get(name))
    }

    /// The text of a variable, unless it is empty.
    pub(super) fn filled(&self, name: &str) -> Option<String> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// The file whose path a variable sets.
    pub(super) fn file(&self, variable: &'static str) -> Option<NamedFile> {
        self.filled(variable).map(|path| NamedFile {
            variable,
            path: path.into(),
        })
    }

    /// `yes` if the variable is true, otherwise `no`.
    pub(super) fn either<T>(&self, name: &str, yes: T, no: T) -> T {
        if self.boolean(name) { yes } else { no }
    }

    /// A number from 0 to 1.
    pub(super) fn fraction(&mut self, name: &str) -> f64 {
        let number = self.float(name);
        if (0.0..=1.0).contains(&number) {
            return number;
        }
        self.problem(name, &number.to_string(), "expected a number from 0 to 1");
        0.0
    }

    pub(super) fn integer(&mut self, name: &str, range: RangeInclusive<i64>) -> i64 {
        let number = self.number(name);
        if range.contains(&number) {
            return number;
        }
        let shown = |number: &i64| match variable(name).kind {
            VariableKind::Bytes => with_unit(*number),
            _ => number.to_string(),
        };
        let low = shown(range.start());
        let reason = match range.end() {
            &i64::MAX => format!("expected {low} or more"),
            high => format!("expected a number from {low} to {}", shown(high)),
        };
        self.problem(name, &shown(&number), reason);
        *range.start()
    }

    pub(super) fn positive_duration(&mut self, name: &str) -> Duration {
        let duration = self.duration(name);
        if duration.is_zero() {
            self.problem(name, "0", "expected more than 0");
        }
        duration
    }

    pub(super) fn duration_unless_zero(&self, name: &str) -> Option<Duration> {
        Some(self.duration(name)).filter(|duration| !duration.is_zero())
    }
}
