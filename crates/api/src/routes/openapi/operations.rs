//! Description of one operation in `docs/openapi.json`, in the terms of the table of routes.

use super::parameters::Parameter;
use crate::http::problem::Code;

/// Answers of an operation that succeeds. A text is the name of a schema, unless its comment says
/// otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answers {
    /// 200 with JSON.
    Json(&'static str),
    /// 200 with a text of this media type.
    Text(&'static str),
    /// 200 with a JSON object that has no schema.
    Object,
    /// 201 with JSON, or 200 if it was created before.
    Created(&'static str),
    /// 204 with this description.
    NoContent(&'static str),
    /// 200 or 503 with a text.
    Readiness,
    /// The operation is for people, and not in the document.
    Unlisted,
}

/// The description of one operation.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) operation: &'static str,
    /// Lines of its doc comment: the summary, an empty line, and the description.
    pub(crate) doc: &'static [&'static str],
    /// The schema of the body. It ends in `?` if the body may be left out.
    pub(crate) body: Option<&'static str>,
    pub(crate) answers: Answers,
    pub(crate) parameters: &'static [Parameter],
    /// Problems besides those that every operation of its kind can have.
    pub(crate) problems: &'static [Code],
}

impl Description {
    /// The `operationId`. Generated clients name their functions by it, so it never changes.
    pub(super) fn id(&self) -> String {
        let (first, rest) = self.operation.split_at(1);
        first.to_lowercase() + rest
    }

    pub(super) fn summary(&self) -> &'static str {
        self.doc[0].trim().trim_end_matches('.')
    }

    pub(super) fn description(&self) -> String {
        let lines = self.doc.iter().skip(1).map(|line| line.trim());
        lines.collect::<Vec<_>>().join(" ").trim().to_owned()
    }
}

/// One answer of an operation.
#[derive(Debug)]
pub(super) struct ListedAnswer {
    pub(super) status: u16,
    pub(super) description: &'static str,
    /// The media type of its body, with the schema. `None` if it has no body.
    pub(super) content: Option<(&'static str, Schema)>,
}

/// The schema of an answer: one of the document, or any value of a type of JSON.
#[derive(Debug, Clone, Copy)]
pub(super) enum Schema {
    Named(&'static str),
    Type(&'static str),
}

impl Answers {
    pub(super) fn listed(self) -> Vec<ListedAnswer> {
        let answer = |status, description, content| ListedAnswer {
            status,
            description,
            content,
        };
        let json = |schema| Some(("application/json", schema));
        let text = |media| Some((media, Schema::Type("string")));
        match self {
            Self::Json(schema) => vec![answer(200, "Done.", json(Schema::Named(schema)))],
            Self::Text(media) => vec![answer(200, "Done.", text(media))],
            Self::Object => vec![answer(200, "Done.", json(Schema::Type("object")))],
            Self::Created(schema) => {
                let content = json(Schema::Named(schema));
                let again = "It was created before, with the same key.";
                vec![
                    answer(201, "It was created.", content),
                    answer(200, again, content),
                ]
            }
            Self::NoContent(description) => vec![answer(204, description, None)],
            Self::Readiness => vec![
                answer(200, "Ready.", text("text/plain")),
                answer(503, "Not ready.", text("text/plain")),
            ],
            Self::Unlisted => Vec::new(),
        }
    }
}
