//! Where in a text the value is that a path such as `jobs[0].after[1]` leads to. JSON is read as the YAML that it is, too.

use std::fmt;

use saphyr_parser::{Event, Marker, Parser};

/// A line and a column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    line: usize,
    column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A list or map around what is read.
enum Around {
    /// The number of its next item.
    List(usize),
    /// The key whose value comes next, if it is a value that comes next.
    Map(Option<String>),
}

/// The place of what `path` leads to, or of the innermost thing on the way there; nothing when not even the first step is in `text`.
pub(crate) fn of(text: &str, path: &str) -> Option<Place> {
    let mut best: Option<(usize, Place)> = None;
    // The paths of all that is open, each a start of the next.
    let mut around: Vec<(Around, String)> = Vec::new();
    for event in Parser::new_from_str(text) {
        // What cannot be read any further has been on the way so far.
        let Ok((event, span)) = event else { break };
        if matches!(event, Event::SequenceEnd | Event::MappingEnd) {
            around.pop();
            continue;
        }
        if !matches!(event, Event::Scalar(..) | Event::Alias(_) | Event::SequenceStart(..) | Event::MappingStart(..)) {
            continue;
        }
        let mut here = String::new();
        match around.last_mut() {
            Some((Around::Map(key @ None), before)) => {
                let name = if let Event::Scalar(name, ..) = &event { name.to_string() } else { String::new() };
                let dot = if before.is_empty() { "" } else { "." };
                let full = format!("{before}{dot}{name}");
                keep(&mut best, path, &full, span.start);
                *key = Some(full);
                // A key that is a list or a map leads nowhere, but has an end.
                if matches!(event, Event::Scalar(..) | Event::Alias(_)) {
                    continue;
                }
            }
            Some((Around::Map(key @ Some(_)), _)) => here = key.take().unwrap_or_default(),
            Some((Around::List(next), before)) => {
                here = format!("{before}[{next}]");
                *next += 1;
                keep(&mut best, path, &here, span.start);
            }
            None => {}
        }
        match event {
            Event::SequenceStart(..) => around.push((Around::List(0), here)),
            Event::MappingStart(..) => around.push((Around::Map(None), here)),
            _ => {}
        }
    }
    best.map(|(_, place)| place)
}

/// Takes `here` when it is on the way of `path`, and further on than what was known.
fn keep(best: &mut Option<(usize, Place)>, path: &str, here: &str, at: Marker) {
    let on_the_way = path.strip_prefix(here).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    if on_the_way && best.is_none_or(|(length, _)| length < here.len()) {
        *best = Some((here.len(), Place { line: at.line(), column: at.col() + 1 }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, path: &str, expected: Option<&str>) {
        assert_eq!(of(text, path).map(|place| place.to_string()).as_deref(), expected, "{path} in {text}");
    }

    #[test]
    fn a_path_leads_to_a_key_or_an_item() {
        let yaml = "name: x\njobs:\n  - name: a\n    after: [b, c]\n  - {name: b, params: {k.l: [1, {m: 2}]}}\n";
        check(yaml, "name", Some("1:1"));
        check(yaml, "jobs", Some("2:1"));
        check(yaml, "jobs[0]", Some("3:5"));
        check(yaml, "jobs[0].after[1]", Some("4:16"));
        check(yaml, "jobs[1].params.k.l[1].m", Some("5:34"));
        let json = "{\n\t\"name\": \"x\",\n\t\"jobs\": [{\"name\": \"a\", \"hand\": 1}]\n}";
        check(json, "jobs[0].hand", Some("3:25"));
    }

    #[test]
    fn what_is_not_there_is_near_what_is_around_it() {
        check("jobs:\n- name: a\n", "jobs[0].handler", Some("2:3"));
        check("jobs:\n- name: a\n", "jobs[10]", Some("1:1"));
        check("jobs: []\n", "tags[0]", None);
        check("jobs: [a, {", "jobs[0]", Some("1:8"));
        check("? [a, b]\n: c\njobs: 1\n", "jobs", Some("3:1"));
        check("a: &x {b: 1}\nc: *x\n", "c.b", Some("2:1"));
        check("", "jobs", None);
    }
}
