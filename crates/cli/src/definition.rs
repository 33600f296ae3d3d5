//! Definitions from files: JSON as it is, YAML as the JSON that it means.

mod place;
mod yaml;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::ask::exit::Failure;
use crate::ask::remote::{Ask, Remote};

const EXPECTED: &str = "a definition, which is a map with `name` and `jobs`";

/// What to create.
#[derive(Debug, Args)]
pub struct Source {
    /// File with the definition, in JSON or YAML; - is standard input
    file: PathBuf,
    /// Idempotency key: a second workflow with it is not created, the first one is returned
    #[arg(long)]
    key: Option<String>,
    /// Tag to find it by, beside those of the definition; may be given more than once
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
}

/// When a new workflow starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// As its definition says.
    Unsaid,
    /// At once.
    Now,
    /// When somebody starts it.
    Manual,
}

impl Source {
    /// Has it created, and returns what the server says.
    pub(crate) async fn create(&self, begin: Begin, remote: &mut Remote) -> Result<String, Failure> {
        let text = self.text().map_err(|error| Failure::usage(format!("{} cannot be read: {error}", self.name())))?;
        let created = remote.text(&Ask::post("/v1/workflows", self.body(&text, begin)?)).await;
        created.map_err(|failure| self.placed(failure, &text))
    }

    /// The body of the request that creates it.
    fn body(&self, text: &str, begin: Begin) -> Result<String, Failure> {
        let name = self.name();
        let json = if self.is_yaml(text) {
            Cow::Owned(yaml::json(text).map_err(|mistake| Failure::usage(format!("{name}:{mistake}")))?)
        } else {
            Cow::Borrowed(text)
        };
        let mut fields: Fields = serde_json::from_str(&json).map_err(|error| {
            let whole = error.to_string();
            let reason = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(reason, _)| reason);
            // The only type that is expected here is that of the whole.
            if reason.starts_with("invalid type") {
                return Failure::usage(format!("{name}: expected {EXPECTED}"));
            }
            Failure::usage(format!("{name}:{}:{}: {reason}", error.line(), error.column()))
        })?;
        self.put_over(&mut fields.0, begin)?;
        Ok(serde_json::to_string(&fields.0).expect("texts and raw JSON are JSON"))
    }

    fn put_over(&self, fields: &mut BTreeMap<String, Box<RawValue>>, begin: Begin) -> Result<(), Failure> {
        let raw = |value: serde_json::Value| serde_json::value::to_raw_value(&value).expect("a value is JSON");
        match begin {
            Begin::Unsaid => None,
            Begin::Now => fields.insert("start".to_owned(), raw("now".into())),
            Begin::Manual => fields.insert("start".to_owned(), raw("manual".into())),
        };
        if let Some(key) = &self.key {
            fields.insert("idempotency_key".to_owned(), raw(key.as_str().into()));
        }
        if !self.tags.is_empty() {
            let known = fields.get("tags").map(|tags| serde_json::from_str::<Vec<String>>(tags.get()));
            let known =
                known.transpose().map_err(|_| Failure::usage("the tags of the definition are not a list of texts"))?;
            let mut tags = known.unwrap_or_default();
            tags.extend(self.tags.iter().filter(|tag| !tags.contains(tag)).cloned().collect::<Vec<_>>());
            fields.insert("tags".to_owned(), raw(tags.into()));
        }
        Ok(())
    }

    /// What the server found wrong at a path, with the place in the file that the path leads to.
    fn placed(&self, failure: Failure, text: &str) -> Failure {
        let Some(path) = &failure.path else { return failure };
        let place = place::of(text, path).map(|place| format!("{place}:")).unwrap_or_default();
        // Its lines are those of what was sent to it.
        let reason = failure.text.rsplit_once(" at line ").map_or(failure.text.as_str(), |(reason, _)| reason);
        Failure { text: format!("{}:{place} {reason}", self.name()), ..failure }
    }

    fn name(&self) -> String {
        if self.is_standard_input() { "standard input".to_owned() } else { self.file.display().to_string() }
    }

    fn is_standard_input(&self) -> bool {
        self.file == Path::new("-")
    }

    fn text(&self) -> std::io::Result<String> {
        if !self.is_standard_input() {
            return std::fs::read_to_string(&self.file);
        }
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map(|_| text)
    }

    /// By the name of the file; without one that tells, what begins with a brace is JSON.
    fn is_yaml(&self, text: &str) -> bool {
        match self.file.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml") => true,
            Some("json") => false,
            _ => !text.trim_start().starts_with('{'),
        }
    }
}

/// The fields of an object; one that is there twice would hide the other.
struct Fields(BTreeMap<String, Box<RawValue>>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Fields;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(EXPECTED)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!("'{name}' is there twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let tags = vec!["new".to_owned(), "old".to_owned()];
        Source { file: PathBuf::from("definition"), key: Some("k\"1".to_owned()), tags }
    }

    fn check(text: &str, begin: Begin, expected: &str) {
        let found = source().body(text, begin).unwrap_or_else(|failure| failure.to_string());
        assert!(found.contains(expected), "{expected} in {found}");
    }

    #[test]
    fn arguments_go_before_the_definition_and_numbers_stay_as_they_are() {
        let text = r#"{"name":"n","tags":["old"],"start":"now","jobs":[{"params":{"big":12345678901234567890123}}]}"#;
        let rest = r#""jobs":[{"params":{"big":12345678901234567890123}}],"name":"n","#;
        check(
            text,
            Begin::Unsaid,
            &format!(r#"{{"idempotency_key":"k\"1",{rest}"start":"now","tags":["old","new"]}}"#),
        );
        check(text, Begin::Manual, &format!(r#"{rest}"start":"manual","tags""#));
        check("name: n\njobs: []", Begin::Now, r#""jobs":[],"name":"n","start":"now","tags":["new","old"]}"#);
    }

    #[test]
    fn mistakes_are_told_by_line_and_column() {
        check("{\n  \"name\": nope\n}", Begin::Unsaid, "definition:2:12: expected ident");
        check("{\"name\": \"a\"} x", Begin::Unsaid, "definition:1:15: trailing characters");
        check("jobs: [\n", Begin::Unsaid, "definition:");
        check("{\"a\": 1,\n\"a\": 2}", Begin::Unsaid, "definition:2:7: 'a' is there twice");
        for text in ["[]", "", "- a", "7"] {
            check(text, Begin::Unsaid, "error: definition: expected a definition, which is a map");
        }
        check("tags: 7", Begin::Unsaid, "tags of the definition");
    }

    #[test]
    fn what_the_server_finds_is_shown_where_it_is() {
        let check = |text: &str, found: &str, path: Option<&str>, expected: &str| {
            let failure = Failure::usage(found).by_server(None, path.map(str::to_owned));
            let shown = source().placed(failure, text).text;
            assert_eq!(shown, expected);
        };
        let text = "name: a\njobs:\n  - name: b\n    after: [c]\n";
        check(text, "there is no job 'c'", Some("jobs[0].after[0]"), "definition:4:13: there is no job 'c'");
        check(text, "unknown field at line 1 column 7", Some("jobs[0].name"), "definition:3:5: unknown field");
        check(text, "too long", Some("idempotency_key"), "definition: too long");
        check(text, "too busy", None, "too busy");
    }
}
