//! Definitions from files: JSON as it is, YAML as the JSON that it means.

mod yaml;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::value::RawValue;

use super::exit::Failure;

/// What to create.
#[derive(Debug, Args)]
pub(super) struct Source {
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
pub(super) enum Begin {
    /// As its definition says.
    Unsaid,
    /// At once.
    Now,
    /// When somebody starts it.
    Manual,
}

impl Source {
    /// The body of the request that creates it.
    pub(super) fn body(&self, begin: Begin) -> Result<String, Failure> {
        let name = if self.is_standard_input() { "standard input".to_owned() } else { self.file.display().to_string() };
        let text = self.text().map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))?;
        let json = if self.is_yaml(&text) {
            yaml::json(&text).map_err(|error| Failure::usage(format!("{name}:{error}")))?
        } else {
            text
        };
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&json).map_err(|error| {
            let whole = error.to_string();
            let reason = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(reason, _)| reason);
            Failure::usage(format!("{name}:{}:{}: {reason}", error.line(), error.column()))
        })?;
        self.put_over(&mut fields, begin)?;
        Ok(serde_json::to_string(&fields).expect("texts and raw JSON are JSON"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, begin: Begin, expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("definition");
        std::fs::write(&file, text).unwrap();
        let source = Source { file, key: Some("k\"1".to_owned()), tags: vec!["new".to_owned(), "old".to_owned()] };
        let found = source.body(begin).unwrap_or_else(|failure| failure.to_string());
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
        check("[]", Begin::Unsaid, "definition:1:");
        check("tags: 7", Begin::Unsaid, "tags of the definition");
    }
}
