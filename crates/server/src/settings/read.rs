//! From text to values: each variable by itself, and names that are nobody's.

use std::collections::{HashMap, HashSet};

use super::Problem;
use super::table::{Support, Variable, variables};
use super::value::Value;

/// Names of our own; a misspelt one must not be ignored.
const PREFIX: &str = "TIDEGATE_";

/// Every variable's value, and the mistakes so far. A variable with a mistake has its default.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) values: HashMap<&'static str, Value>,
    pub(super) given: HashSet<&'static str>,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<String>,
}

impl Values {
    pub(super) fn read(given: &HashMap<String, String>) -> Self {
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

    fn one(&mut self, variable: &'static Variable, text: &str) -> Option<Value> {
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

    pub(super) fn problem(&mut self, name: &'static str, text: &str, reason: String) {
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
