//! What the description of the API says is so.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Flows, document, workflow};

fn description() -> Value {
    serde_json::from_str(&document("docs/openapi.json")).unwrap()
}

/// Checks a value against a schema, as far as this document uses the language of schemas.
struct Schemas(Value);

impl Schemas {
    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.strip_prefix("#/components/schemas/").unwrap();
            return self.check(&self.0["components"]["schemas"][name], value, at);
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let tried: Vec<_> = choices
                .iter()
                .map(|choice| self.check(choice, value, at))
                .collect();
            return if tried.iter().any(Result::is_ok) {
                Ok(())
            } else {
                Err(format!("{at}: none of {tried:?}"))
            };
        }
        for words in [&schema["enum"], &schema["x-extensible-enum"]] {
            if words.as_array().is_some_and(|words| !words.contains(value)) {
                return Err(format!("{at}: {value} is not one of {words}"));
            }
        }
        check_kind(&schema["type"], value, at)?;
        for (place, item) in value.as_array().into_iter().flatten().enumerate() {
            self.check(&schema["items"], item, &format!("{at}[{place}]"))?;
        }
        let Some(entries) = value.as_object() else {
            return Ok(());
        };
        let missing = schema["required"].as_array().into_iter().flatten();
        if let Some(name) = missing
            .filter_map(Value::as_str)
            .find(|name| !entries.contains_key(*name))
        {
            return Err(format!("{at}: there is no {name}"));
        }
        for (name, entry) in entries {
            match schema["properties"].get(name) {
                Some(schema) => self.check(schema, entry, &format!("{at}.{name}"))?,
                None if schema["additionalProperties"] == false => {
                    return Err(format!("{at}: {name} is unknown"));
                }
                None => self.check(
                    &schema["additionalProperties"],
                    entry,
                    &format!("{at}.{name}"),
                )?,
            }
        }
        Ok(())
    }
}

/// Whether a value is of the kind, or one of the kinds, that a schema names.
fn check_kind(kinds: &Value, value: &Value, at: &str) -> Result<(), String> {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_listed = |kinds: &Vec<Value>| kinds.contains(&json!(kind));
    if kinds.is_null() || kinds == kind || kinds.as_array().is_some_and(is_listed) {
        return Ok(());
    }
    Err(format!("{at}: {value} is no {kinds}"))
}

#[test]
fn the_description_that_is_served_is_the_one_in_the_documents() {
    let flows = Flows::start();
    let served: Value =
        serde_json::from_str(&flows.ask("GET", "/v1/openapi.json", &[], "").body).unwrap();
    assert_eq!(served, description());
}

/// A server whose answers are held against the document.
struct Described {
    flows: Flows,
    schemas: Schemas,
}

impl Described {
    fn start() -> Self {
        Self {
            flows: Flows::start(),
            schemas: Schemas(description()),
        }
    }

    /// What the server answers, which must be as described for the template of its path.
    #[track_caller]
    fn check(&self, template: &str, method: &str, path: &str, body: Value) -> Value {
        let text = if method == "get" {
            String::new()
        } else {
            body.to_string()
        };
        let answer = self.flows.ask(&method.to_uppercase(), path, &[], &text);
        let described =
            &self.schemas.0["paths"][template][method]["responses"][answer.status.to_string()];
        let kind = answer.header("content-type").unwrap();
        let schema = &described["content"][kind]["schema"];
        assert!(
            !schema.is_null(),
            "{method} {path}: {answer:?} is not described"
        );
        let value: Value = serde_json::from_str(&answer.body).unwrap();
        self.schemas.check(schema, &value, path).unwrap();
        if let Some(code) = value["code"].as_str().filter(|_| answer.status >= 400) {
            let text = described["description"].as_str().unwrap();
            assert!(
                text.contains(code),
                "{method} {path}: {code} is not among {text}"
            );
        }
        value
    }
}

const ONE: &str = "/v1/workflows/{id}";

impl Described {
    fn get(&self, template: &str, path: &str) -> Value {
        self.check(template, "get", path, Value::Null)
    }

    /// A POST to a path that has no parameters.
    fn post(&self, path: &str, body: Value) -> Value {
        self.check(path, "post", path, body)
    }

    /// The id of a new workflow in which each member of an answer has a value.
    fn create(&self) -> String {
        let mut body = workflow("w", "a b<a c<a later stuck");
        body["tags"] = json!(["t"]);
        body["globals"] = json!({"g": 1});
        body["retention"] = json!("1d");
        body["jobs"][3]["wait"] = json!("1h");
        body["jobs"][4]["queue"] = json!("far");
        let created = self.post("/v1/workflows", body);
        created["id"].as_str().unwrap().to_owned()
    }
}

/// Runs a job of a workflow of [`Described::create`] to its end, and makes another fail that has told of its progress.
fn work(described: &Described) {
    let job = described.flows.claim();
    let claim = json!({"queues": ["default"], "worker": "w"});
    let reports = json!([
        {"lease": job["lease"], "outcome": "succeeded", "output": 1},
        {"lease": "?", "outcome": "succeeded"},
    ]);
    let report = json!({"reports": reports, "claim": claim});
    let next = described.post("/v1/jobs/report", report);
    let lease = &next["jobs"][0]["lease"];
    let notes = json!([
        {"lease": lease, "progress": {"percent": 1, "text": "x"}, "log": ["y"]},
        {"lease": "?"},
    ]);
    let extend = json!({"leases": [lease, "?"], "notes": notes});
    described.post("/v1/jobs/extend", extend);
    let noted = json!({"reports": [], "notes": notes});
    described.post("/v1/jobs/report", noted);
    described.flows.fail(&next["jobs"][0]);
    described.post("/v1/jobs/claim", claim);
}

#[test]
fn answers_about_jobs_and_to_workers_are_as_described() {
    let described = Described::start();
    let id = described.create();
    work(&described);
    for job in ["a", "b", "c"] {
        let path = format!("/v1/workflows/{id}/jobs/{job}");
        described.get("/v1/workflows/{id}/jobs/{name}", &path);
        let log = format!("{path}/log");
        described.get("/v1/workflows/{id}/jobs/{name}/log", &log);
    }
    let failed = format!("/v1/workflows/{id}/jobs/b");
    let shown = described.get("/v1/workflows/{id}/jobs/{name}", &failed);
    assert_eq!(shown["errors"].as_array().unwrap().len(), 1);
}

#[test]
fn answers_about_workflows_and_queues_are_as_described() {
    let described = Described::start();
    let id = described.create();
    work(&described);
    for view in ["summary", "jobs", "full"] {
        described.get(ONE, &format!("/v1/workflows/{id}?view={view}"));
    }
    for path in ["/jobs", "/graph.json"] {
        let template = format!("{ONE}{path}");
        described.get(&template, &format!("/v1/workflows/{id}{path}"));
    }
    for path in [
        "/v1/workflows",
        "/v1/workflows:count",
        "/v1/queues",
        "/v1/version",
    ] {
        described.get(path, path);
    }
    described.get("/v1/workflows:count", "/v1/workflows:count?by=name");
    let pause = "/v1/queues/{name}:pause";
    described.check(pause, "post", "/v1/queues/far:pause", json!({}));
    let batch = json!({"workflows": [workflow("w", "a"), {}]});
    described.post("/v1/workflows:batch", batch);
    let delete = json!({"action": "delete", "filter": {}});
    described.post("/v1/workflows:bulk", delete);
    let expire = format!("/v1/workflows/{id}:expire");
    let after = json!({"after": "2d"});
    described.check(&format!("{ONE}:expire"), "post", &expire, after);
}

#[test]
fn problems_are_as_described() {
    let described = Described::start();
    let check = |template: &str, method: &str, path: &str, body: Value| {
        let answer = described.check(template, method, path, body);
        assert!(answer["code"].is_string(), "{method} {path}: {answer}");
    };
    let id = described.flows.create(workflow("w", "a"));
    check("/v1/workflows", "get", "/v1/workflows?limit=0", Value::Null);
    check(
        "/v1/workflows",
        "get",
        "/v1/workflows?cursor=x",
        Value::Null,
    );
    check(
        "/v1/workflows",
        "post",
        "/v1/workflows",
        workflow("w", "a<a"),
    );
    check(
        "/v1/workflows:byKey",
        "get",
        "/v1/workflows:byKey?key=none",
        Value::Null,
    );
    check(
        "/v1/queues/{name}:resume",
        "post",
        "/v1/queues/none:resume",
        json!({}),
    );
    for (verb, body) in [("start", json!({})), ("restart", json!({"jobs": ["none"]}))] {
        check(
            &format!("{ONE}:{verb}"),
            "post",
            &format!("/v1/workflows/{id}:{verb}"),
            body,
        );
    }
    check(ONE, "delete", &format!("/v1/workflows/{id}"), Value::Null);
    for verb in ["retry", "skip", "cancel", "mark_succeeded"] {
        let template = format!("{ONE}/jobs/{{name}}:{verb}");
        check(
            &template,
            "post",
            &format!("/v1/workflows/{id}/jobs/none:{verb}"),
            json!({}),
        );
    }
    check(
        &format!("{ONE}/jobs/{{name}}:retry"),
        "post",
        &format!("/v1/workflows/{id}/jobs/a:retry"),
        json!({}),
    );
}

#[test]
fn every_code_is_explained() {
    let text = document("docs/http-api.md");
    let table = text
        .split_once("| code |")
        .unwrap()
        .1
        .split("\n\n")
        .next()
        .unwrap();
    let codes = table.lines().filter_map(|line| line.split('|').nth(1));
    let explained: BTreeSet<&str> = codes
        .flat_map(|codes| codes.split('`').skip(1).step_by(2))
        .collect();
    let document = description();
    let all =
        document["components"]["schemas"]["Problem"]["properties"]["code"]["x-extensible-enum"]
            .as_array()
            .unwrap();
    assert_eq!(
        explained,
        all.iter().map(|code| code.as_str().unwrap()).collect()
    );
}

#[test]
fn requests_have_the_fields_that_are_described() {
    let flows = Flows::start();
    let id = flows.create(workflow("w", "a"));
    let document = description();
    let properties = |name: &str| -> BTreeSet<String> {
        document["components"]["schemas"][name]["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let expire = format!("/v1/workflows/{id}:expire");
    let restart = format!("/v1/workflows/{id}:restart");
    let mark = format!("/v1/workflows/{id}/jobs/a:mark_succeeded");
    let unknown = json!({"?": 1});
    for (schema, path, body) in [
        ("Definition", "/v1/workflows", unknown.clone()),
        ("JobDefinition", "/v1/workflows", json!({"jobs": [unknown]})),
        ("Batch", "/v1/workflows:batch", unknown.clone()),
        ("Claim", "/v1/jobs/claim", unknown.clone()),
        ("ReportRequest", "/v1/jobs/report", unknown.clone()),
        ("Report", "/v1/jobs/report", json!({"reports": [unknown]})),
        (
            "ReportError",
            "/v1/jobs/report",
            json!({"reports": [{"error": unknown}]}),
        ),
        ("Extend", "/v1/jobs/extend", unknown.clone()),
        ("Bulk", "/v1/workflows:bulk", unknown.clone()),
        (
            "BulkFilter",
            "/v1/workflows:bulk",
            json!({"filter": unknown}),
        ),
        ("Expire", &expire, unknown.clone()),
        ("Restart", &restart, unknown.clone()),
        ("MarkSucceeded", &mark, unknown.clone()),
    ] {
        let answer = flows.ask("POST", path, &[], &body.to_string()).body;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        // What is wrong with one report is said of that report.
        let answer = answer["reports"]
            .get(0)
            .map_or(&answer, |report| &report["error"]);
        // "unknown field `?`, expected one of `name`, `jobs`, ..": what the reader itself knows.
        let (_, known) = answer["detail"]
            .as_str()
            .unwrap()
            .split_once("expected")
            .unwrap();
        let known: BTreeSet<String> = known
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        assert_eq!(known, properties(schema), "{schema}: {answer}");
    }
}
