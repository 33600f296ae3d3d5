//! Generator of the document: all routes of the table with their descriptions, and the schemas.

use std::collections::BTreeMap;
use std::path::Path;

use axum::http::Method;
use serde_json::{Map, Value, json};

use super::operations::{Answers, Description, Schema};
use super::parameters::{Parameter, ParameterKind};
use super::{DOCUMENT, schemas};
use crate::http::problem::Code;
use crate::http::route::{Route, StoreRequirement};
use crate::routes::{ROUTES, descriptions};

/// Columns of a line.
const WIDTH: usize = 130;

fn document() -> Value {
    let mut paths = Map::new();
    for (route, about) in described() {
        let path = paths.entry(route.template).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation(route, &about);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": "1",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "Workflows: create them, run their jobs, look at them. Unknown fields and parameters of requests are refused. \
                Answers may get more fields, and more words where a schema says so. Times are RFC 3339 in UTC with microseconds. Time spans \
                are texts such as `30s` in requests, and numbers of milliseconds under names that end in `_ms` in answers. Every answer \
                has a header X-Request-Id: the one that the request was sent with, or a new one. A path that is asked with a method that it \
                does not have answers 405 with the code `method_not_allowed` and a header Allow.",
        },
        "servers": [{"url": "http://127.0.0.1:7070"}],
        "tags": [
            {"name": "workflows", "description": "Create, find and change workflows."},
            {"name": "jobs", "description": "What workers do, and what is done to single jobs."},
            {"name": "queues", "description": "What waits for workers."},
            {"name": "limits", "description": "Rate limits of requests and jobs."},
            {"name": "server", "description": "The server itself."},
            {"name": "page", "description": "What only the page in a browser needs."},
        ],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token of TIDEGATE_TOKENS_FILE. Without that file the server asks for none. Browsers may have it in the \
                    cookie that `signIn` sets; then calls that are not GET need the header Tidegate-Page.",
            }},
            "headers": described_headers(),
            "schemas": schemas::all(),
        },
    })
}

/// All routes with their descriptions, but those of the page, which is for people.
fn described() -> impl Iterator<Item = (&'static Route, Description)> {
    let is_listed = |about: &Description| !matches!(about.answers, Answers::Unlisted);
    ROUTES
        .iter()
        .zip(descriptions())
        .filter(move |(_, about)| is_listed(about))
}

fn operation(route: &Route, about: &Description) -> Value {
    let role = route.role.map_or("No token is needed.".to_owned(), |role| {
        format!("Role: {role:?}.").to_lowercase()
    });
    let role = role.replacen("role", "Role", 1);
    let description = format!("{} {role}", about.description());
    let mut operation = json!({
        "operationId": about.id(),
        "summary": about.summary(),
        "description": description.trim(),
        "tags": [tag(route)],
        "responses": responses(route, about),
    });
    let parameters = parameters(route, about);
    if !parameters.is_empty() {
        operation["parameters"] = json!(parameters);
    }
    if let Some(body) = about.body {
        let schema = reference(body.trim_end_matches('?'));
        operation["requestBody"] = json!({
            "required": !body.ends_with('?'),
            "content": {"application/json": {"schema": schema}},
        });
    }
    if route.role.is_some() {
        operation["security"] = json!([{"token": []}, {}]);
    }
    operation
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn tag(route: &Route) -> &'static str {
    match route.template {
        path if path.contains("/jobs") => "jobs",
        path if path.starts_with("/v1/queues") || path.starts_with("/v1/handlers") => "queues",
        path if path.starts_with("/v1/workflows") || path == "/v1/failures" => "workflows",
        path if path.starts_with("/v1/limits") => "limits",
        "/v1/session" | "/v1/live" => "page",
        _ => "server",
    }
}

fn parameters(route: &Route, about: &Description) -> Vec<Value> {
    let names = route
        .template
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    let in_path = names.map(|name| {
        let schema = if name == "id" {
            reference("WorkflowId")
        } else {
            json!({"type": "string"})
        };
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    });
    let named = about
        .parameters
        .iter()
        .filter(|known| !known.name.is_empty());
    in_path.chain(named.map(parameter)).collect()
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.schema {
        ParameterKind::Text | ParameterKind::RequiredText => json!({"type": "string"}),
        ParameterKind::RequiredTexts(most) => {
            json!({"type": "array", "minItems": 1, "maxItems": most, "items": {"type": "string"}})
        }
        ParameterKind::Prefix => json!({"type": "string", "minLength": 4, "maxLength": 26}),
        ParameterKind::Span => reference("Span"),
        ParameterKind::Time => json!({"type": "string", "format": "date-time"}),
        ParameterKind::Flag => json!({"type": "boolean", "default": false}),
        ParameterKind::Number(least, most, default) => {
            json!({"type": "integer", "minimum": least, "maximum": most, "default": default})
        }
        ParameterKind::Words(words) => json!({"type": "string", "enum": words}),
    };
    let is_required = matches!(
        parameter.schema,
        ParameterKind::RequiredText | ParameterKind::RequiredTexts(_)
    );
    json!({
        "name": parameter.name,
        "in": parameter.place,
        "required": is_required,
        "description": parameter.description,
        "schema": schema,
    })
}

fn responses(route: &Route, about: &Description) -> Value {
    let mut responses = BTreeMap::new();
    for answer in about.answers.listed() {
        let headers = headers(&["X-Request-Id"]);
        let mut response = json!({"description": answer.description, "headers": headers});
        if let Some((media, schema)) = answer.content {
            let schema = match schema {
                Schema::Named(name) => reference(name),
                Schema::Type(kind) => json!({"type": kind}),
            };
            response["content"] = json!({media: {"schema": schema}});
        }
        responses.insert(answer.status.to_string(), response);
    }
    let mut codes: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in problems(route, about) {
        let words = codes.entry(code.status().as_u16()).or_default();
        if !words.contains(&code.word()) {
            words.push(code.word());
        }
    }
    for (status, words) in codes {
        let description = format!("Code: {}.", words.join(", "));
        let content = json!({"application/problem+json": {"schema": reference("Problem")}});
        let headers = match status {
            401 => headers(&["X-Request-Id", "WWW-Authenticate"]),
            503 => headers(&["X-Request-Id", "Retry-After"]),
            _ => headers(&["X-Request-Id"]),
        };
        let response = json!({"description": description, "headers": headers, "content": content});
        responses.insert(status.to_string(), response);
    }
    json!(responses)
}

/// The headers of an answer, which `components` describes.
fn headers(names: &[&str]) -> Value {
    let reference = |name: &&str| {
        (
            (*name).to_owned(),
            json!({"$ref": format!("#/components/headers/{name}")}),
        )
    };
    Value::Object(names.iter().map(reference).collect())
}

/// Returns the descriptions of the headers of answers.
fn described_headers() -> Value {
    let text = json!({"type": "string"});
    json!({
        "X-Request-Id": {"description": "The id of the request: the one that was sent, or a new one.", "schema": text},
        "WWW-Authenticate": {"description": "The kind of token that is wanted: Bearer.", "schema": text},
        "Retry-After": {
            "description": "Seconds after which it may be tried again.",
            "schema": {"type": "integer", "minimum": 0},
        },
    })
}

/// Returns all codes that a route can answer with.
fn problems(route: &Route, about: &Description) -> Vec<Code> {
    let mut codes = about.problems.to_vec();
    if route.role.is_none() {
        return codes;
    }
    codes.extend([Code::Unauthorized, Code::Forbidden, Code::InvalidField]);
    if route.method != Method::GET {
        codes.extend([
            Code::InvalidJson,
            Code::PayloadTooLarge,
            Code::RequestTimeout,
        ]);
    }
    if route.needs == StoreRequirement::Nothing {
        return codes;
    }
    codes.extend([
        Code::Overloaded,
        Code::StoreUnavailable,
        Code::ShuttingDown,
        Code::Internal,
    ]);
    codes
}

/// Returns the committed text. A value that fits into a line is on one, so that people can read it.
fn text() -> String {
    let mut text = String::new();
    write(&mut text, &document(), 0);
    text + "\n"
}

fn write(text: &mut String, value: &Value, depth: usize) {
    let line = value.to_string();
    if depth + line.len() <= WIDTH {
        return text.push_str(&line);
    }
    let (open, close) = if value.is_object() {
        ('{', '}')
    } else {
        ('[', ']')
    };
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(entries) => entries
            .iter()
            .map(|(key, entry)| (format!("{}: ", json!(key)), entry))
            .collect(),
        Value::Array(items) => items.iter().map(|item| (String::new(), item)).collect(),
        _ => return text.push_str(&line),
    };
    for (at, (key, entry)) in entries.into_iter().enumerate() {
        text.push(if at == 0 { open } else { ',' });
        text.push('\n');
        text.push_str(&" ".repeat(depth + 1));
        text.push_str(&key);
        write(text, entry, depth + 1);
    }
    text.push('\n');
    text.push_str(&" ".repeat(depth));
    text.push(close);
}

/// `make gen` runs this test with TIDEGATE_GENERATE set. Then it writes the file.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "tests have no settings; this is how make tells the test to write"
)]
fn committed_openapi_is_current() {
    if std::env::var_os("TIDEGATE_GENERATE").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        std::fs::write(path, text()).unwrap();
        return;
    }
    assert!(
        DOCUMENT == text(),
        "docs/openapi.json is stale: run `make gen`"
    );
}

#[test]
fn operations_have_names_of_their_own_and_schemas_that_exist() {
    let document = document();
    let mut ids: Vec<&str> = Vec::new();
    for operation in document["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|path| path.as_object().unwrap().values())
    {
        ids.push(operation["operationId"].as_str().unwrap());
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(
        (ids.len(), count),
        (described().count(), described().count())
    );
    check_references(&document, &document["components"]["schemas"]);
}

fn check_references(value: &Value, schemas: &Value) {
    if let Some(name) = value["$ref"]
        .as_str()
        .and_then(|name| name.strip_prefix("#/components/schemas/"))
    {
        assert!(schemas.get(name).is_some(), "there is no schema {name}");
    }
    let parts = value
        .as_object()
        .into_iter()
        .flat_map(Map::values)
        .chain(value.as_array().into_iter().flatten());
    parts.for_each(|part| check_references(part, schemas));
}
