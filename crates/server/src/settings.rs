//! Settings: the only reader of the environment.
//!
//! One table (settings/table.rs) holds a row per variable; every mistake is reported at once; nothing secret is printed.

mod build;
mod redis;
mod show;
mod table;
mod value;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use redis::{HealthCheck, Redis, RedisServer};
pub use show::{effective, markdown};
use table::{Support, variables};
use value::Value;

/// Names of our own; a misspelt one must not be ignored.
const PREFIX: &str = "TIDEGATE_";

/// Everything the server is told at start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The HTTP port.
    pub http: Endpoint,
    /// The debug port.
    pub debug: Endpoint,
    /// The gRPC port or socket.
    pub grpc: GrpcEndpoint,
    /// Bounds of a gRPC connection's life.
    pub connection_age: ConnectionAge,
    /// What is logged, and how.
    pub log: Log,
    /// Where the configuration comes from.
    pub files: Files,
    /// How metrics are exported.
    pub metrics: Metrics,
    /// How to count and answer.
    pub limiter: tidegate_ratelimit::Options,
    /// Names of the three response headers: limit, remaining, reset.
    pub header_names: [String; 3],
    /// Redis; without it, counters are in memory.
    pub redis: Option<Redis>,
    /// Most counters in memory.
    pub max_keys: usize,
    /// Threads that serve calls, at least 1.
    pub cores: usize,
    /// Longest a call waits for the store.
    pub call_timeout: Duration,
    /// How the server stops.
    pub drain: Drain,
    /// Whether a configuration without domains is unhealthy.
    pub health_needs_domain: bool,
    /// What was asked for and has no effect, a sentence each.
    pub warnings: Vec<String>,
}

/// A host and a port to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub host: IpAddr,
    /// The port; 0 lets the system choose.
    pub port: u16,
}

/// Where gRPC listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrpcEndpoint {
    /// A port.
    Tcp(Endpoint),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Bounds of a gRPC connection's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionAge {
    /// When it is asked to go away; none is never.
    pub limit: Option<Duration>,
    /// How much longer its calls may run; none is for ever.
    pub grace: Option<Duration>,
}

/// What is logged, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// The least severe level.
    pub level: tracing::Level,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Where configuration files are, and how they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// A folder, or a symbolic link to one.
    pub root: PathBuf,
    /// Whether the root was asked for, or is the default.
    pub root_given: bool,
    /// Under the root.
    pub subdirectory: PathBuf,
    /// Under the subdirectory.
    pub app_directory: PathBuf,
    /// What is read, and how it is named.
    pub scope: Scope,
    /// What to do with names that start with a dot.
    pub dot_files: DotFiles,
    /// What to do with a second file of the same domain.
    pub same_domain: tidegate_ratelimit::SameDomain,
    /// When the ports open.
    pub first_load: FirstLoad,
}

/// What is read, and how it is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The subdirectory; files are named from there, and used when the name starts with the app directory's.
    Subdirectory,
    /// The app directory; files are named from there.
    AppDirectory,
}

/// What to do with names that start with a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DotFiles {
    /// Read them.
    Read,
    /// Skip them.
    Skip,
}

/// When the ports open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstLoad {
    /// After the first load, whatever became of it.
    BeforePorts,
    /// At once.
    AfterPorts,
}

/// How metrics are exported.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// A port of its own for Prometheus, and the path there.
    pub prometheus: Option<(Endpoint, String)>,
    /// Labels on every metric.
    pub labels: Vec<(String, String)>,
    /// The unit in which response times are observed.
    pub response_time: ResponseTime,
    /// Most names of limits.
    pub max_names: usize,
}

/// The unit in which response times are observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseTime {
    /// As the metric's name says.
    Seconds,
    /// As old dashboards expect.
    Milliseconds,
}

/// How the server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// How long connections are accepted while health says NOT_SERVING.
    pub delay: Duration,
    /// How long calls in flight may take after that.
    pub timeout: Duration,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The variable.
    pub variable: String,
    /// Its value, masked when it is secret.
    pub value: String,
    /// What is wrong with it, or what is expected.
    pub reason: String,
}

/// Every mistake in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// At least one, in the order of the table.
    pub problems: Vec<Problem>,
}

impl std::error::Error for SettingsError {}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.len();
        write!(f, "{count} setting{} wrong", if count == 1 { " is" } else { "s are" })?;
        for Problem { variable, value, reason } in &self.problems {
            write!(f, "\n  {variable}='{value}': {reason}")?;
        }
        Ok(())
    }
}

impl Settings {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn from_environment() -> Result<Self, SettingsError> {
        Self::parse(&environment())
    }

    /// Reads settings from pairs of name and value. Names that are not ours are ignored.
    ///
    /// # Errors
    /// Every mistake.
    pub fn parse(given: &HashMap<String, String>) -> Result<Self, SettingsError> {
        let mut values = Values::read(given);
        let settings = build::build(&mut values);
        if values.problems.is_empty() {
            return Ok(settings);
        }
        let order = |problem: &Problem| variables().position(|variable| variable.name == problem.variable);
        values.problems.sort_by_key(|problem| order(problem).unwrap_or(usize::MAX));
        Err(SettingsError { problems: values.problems })
    }
}

/// The process's environment; text that is not Unicode has its bad bytes replaced.
pub(crate) fn environment() -> HashMap<String, String> {
    let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// Every variable's value, and the mistakes so far. A variable with a mistake has its default.
#[derive(Debug)]
struct Values {
    values: HashMap<&'static str, Value>,
    given: HashSet<&'static str>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl Values {
    fn read(given: &HashMap<String, String>) -> Self {
        let mut read =
            Self { values: HashMap::new(), given: HashSet::new(), problems: Vec::new(), warnings: Vec::new() };
        for variable in variables() {
            let default = variable.kind.read(variable.default).expect("defaults are of their kind");
            let value = given.get(variable.name).and_then(|text| read.one(variable, text));
            read.values.insert(variable.name, value.unwrap_or(default));
        }
        let mut unknown: Vec<_> = given.keys().filter(|name| name.starts_with(PREFIX)).collect();
        unknown.retain(|name| !variables().any(|variable| variable.name == **name));
        unknown.sort();
        for name in unknown {
            let reason = format!("there is no such setting; did you mean {}?", closest(name));
            read.problems.push(Problem { variable: name.clone(), value: "..".to_owned(), reason });
        }
        read
    }

    fn one(&mut self, variable: &'static table::Variable, text: &str) -> Option<Value> {
        self.given.insert(variable.name);
        let Some(value) = variable.kind.read(text) else {
            self.problem(variable.name, text, format!("expected {}", variable.kind.expected()));
            return None;
        };
        match variable.support {
            Support::Refused { but, why } if !text.is_empty() && Some(&value) != variable.kind.read(but).as_ref() => {
                let but = if but.is_empty() { "leave it unset".to_owned() } else { format!("expected {but}") };
                self.problem(variable.name, text, format!("{why}; {but}"));
            }
            Support::Warned { why } if value != Value::Boolean(false) && !text.is_empty() => {
                self.warnings.push(format!("{}={text} has no effect: {why}", variable.name));
            }
            _ => {}
        }
        Some(value)
    }

    fn problem(&mut self, name: &'static str, text: &str, reason: String) {
        let kind = variables().find(|variable| variable.name == name).expect("only names of the table are read").kind;
        self.problems.push(Problem { variable: name.to_owned(), value: kind.masked(text), reason });
    }
}

/// The name of ours that differs from `name` in the fewest letters.
fn closest(name: &str) -> &'static str {
    let ours = variables().map(|variable| variable.name).filter(|ours| ours.starts_with(PREFIX));
    ours.min_by_key(|ours| distance(name, ours)).expect("the table has names of ours")
}

/// The number of letters to insert, delete or replace.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}
