//! Arguments of a command that creates a workflow: the file of the definition, a key and tags.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::value::{RawValue, to_raw_value};

use super::Definition;
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::output::exit::{CommandResult, Failure};

/// Definition to create a workflow from.
#[derive(Debug, Args)]
pub struct Source {
    /// File with the definition, in JSON or YAML; - is standard input
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Idempotency key: if a workflow with this key exists, it is returned and no other is created
    #[arg(long)]
    key: Option<String>,
    /// Tag to add to those of the definition; may be given more than once
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
}

/// Time at which a new workflow starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartTime {
    /// The definition decides.
    AsDefined,
    /// The workflow starts when it is created.
    Now,
    /// The workflow starts on request.
    Manual,
}

impl Source {
    /// Reads the definition, and applies the arguments to it. Standard input is read in blocking
    /// mode to its end.
    pub(crate) fn read(&self, start: StartTime) -> CommandResult<Definition> {
        self.with_arguments(Definition::read(&self.file)?, start)
    }

    /// Creates the workflow, and returns the answer of the server.
    pub(crate) async fn create(
        &self,
        definition: &Definition,
        remote: &ApiClient,
    ) -> CommandResult<String> {
        let api_request = ApiRequest::post("/v1/workflows", definition.json());
        let api_request = if has_key(definition) {
            api_request.with_key()
        } else {
            api_request
        };
        remote
            .text(&api_request)
            .await
            .map_err(|failure| definition.with_position(failure))
    }

    fn with_arguments(
        &self,
        mut definition: Definition,
        start: StartTime,
    ) -> CommandResult<Definition> {
        let fields = &mut definition.fields;
        let raw = |value: serde_json::Value| to_raw_value(&value).expect("a value is JSON");
        match start {
            StartTime::AsDefined => None,
            StartTime::Now => fields.insert("start".to_owned(), raw("now".into())),
            StartTime::Manual => fields.insert("start".to_owned(), raw("manual".into())),
        };
        if let Some(key) = &self.key {
            fields.insert("idempotency_key".to_owned(), raw(key.as_str().into()));
        }
        if !self.tags.is_empty() {
            let tags = self.with_tags_of(fields.get("tags").map(|tags| &**tags))?;
            fields.insert("tags".to_owned(), raw(tags.into()));
        }
        Ok(definition)
    }

    /// The tags of the definition, and those arguments that are not among them.
    fn with_tags_of(&self, defined: Option<&RawValue>) -> CommandResult<Vec<String>> {
        let mut tags: Vec<String> = match defined {
            None => Vec::new(),
            Some(tags) => serde_json::from_str(tags.get()).map_err(|_| {
                Failure::usage("the tags of the definition are not a list of texts")
            })?,
        };
        let defined = tags.len();
        for tag in &self.tags {
            if !tags[..defined].contains(tag) {
                tags.push(tag.clone());
            }
        }
        Ok(tags)
    }
}

/// Whether the definition has an idempotency key, so that repeated creation is safe.
fn has_key(definition: &Definition) -> bool {
    definition
        .fields
        .get("idempotency_key")
        .is_some_and(|key| key.get() != "null")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        let tags = vec!["new".to_owned(), "old".to_owned()];
        Source {
            file: PathBuf::from("definition"),
            key: Some("k\"1".to_owned()),
            tags,
        }
    }

    fn check(text: &str, start: StartTime, expected: &str) {
        let definition = Definition::of_file(&source().file, text.to_owned());
        let found = definition
            .and_then(|definition| source().with_arguments(definition, start))
            .map(|definition| definition.json())
            .unwrap_or_else(|failure| failure.text);
        assert!(found.contains(expected), "{expected} in {found}");
    }

    #[test]
    fn arguments_go_before_the_definition_and_numbers_stay_as_they_are() {
        let text = r#"{"name":"n","tags":["old"],"start":"now","jobs":[{"params":{"big":12345678901234567890123}}]}"#;
        let rest = r#""jobs":[{"params":{"big":12345678901234567890123}}],"name":"n","#;
        check(
            text,
            StartTime::AsDefined,
            &format!(r#"{{"idempotency_key":"k\"1",{rest}"start":"now","tags":["old","new"]}}"#),
        );
        check(
            text,
            StartTime::Manual,
            &format!(r#"{rest}"start":"manual","tags""#),
        );
        check(
            "name: n\njobs: []",
            StartTime::Now,
            r#""jobs":[],"name":"n","start":"now","tags":["new","old"]}"#,
        );
    }

    #[test]
    fn mistakes_are_told_by_line_and_column() {
        check(
            "{\n  \"name\": nope\n}",
            StartTime::AsDefined,
            "definition:2:12: expected ident",
        );
        check(
            "{\"name\": \"a\"} x",
            StartTime::AsDefined,
            "definition:1:15: trailing characters",
        );
        check("jobs: [\n", StartTime::AsDefined, "definition:");
        check(
            "{\"a\": 1,\n\"a\": 2}",
            StartTime::AsDefined,
            "definition:2:1: 'a' is there twice",
        );
        check(
            "{\"\u{e9}\u{1f600}\": nope}",
            StartTime::AsDefined,
            "definition:1:9: expected ident",
        );
        check(
            "{\"a\": 1, \"\\ud83d\": 2}",
            StartTime::AsDefined,
            "definition:1:10: unexpected end of hex escape",
        );
        for text in ["[]", "", "- a", "7"] {
            check(
                text,
                StartTime::AsDefined,
                "definition: expected a definition, which is a map",
            );
        }
        check("tags: 7", StartTime::AsDefined, "tags of the definition");
    }

    #[test]
    fn what_the_server_finds_is_shown_where_it_is() {
        let check = |text: &str, found: &str, path: Option<&str>, expected: &str| {
            let failure = Failure {
                path: path.map(str::to_owned),
                ..Failure::usage(found)
            };
            let definition = Definition::of_file(&source().file, text.to_owned()).unwrap();
            let shown = definition.with_position(failure).text;
            assert_eq!(shown, expected);
        };
        let text = "name: a\njobs:\n  - name: b\n    after: [c]\n";
        check(
            text,
            "there is no job 'c'",
            Some("jobs[0].after[0]"),
            "definition:4:13: there is no job 'c'",
        );
        check(
            text,
            "unknown field at line 1 column 7",
            Some("jobs[0].name"),
            "definition:3:5: unknown field",
        );
        check(
            text,
            "there is no job 'x at line 5'",
            None,
            "there is no job 'x at line 5'",
        );
        check(
            text,
            "no 'x at line 5'",
            Some("name"),
            "definition:1:1: no 'x at line 5'",
        );
        check(
            "{\"x\": \"\\ud83d\\ude00\",\n \"y\": 1}",
            "wrong",
            Some("y"),
            "definition:2:2: wrong",
        );
        check(
            text,
            "too long",
            Some("idempotency_key"),
            "definition: too long",
        );
        check(text, "too busy", None, "too busy");
    }
}
