//! The messages of golden/worker and docs/http-api.md are those of a real server, and the plain worker speaks them.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{Flows, redis};
use crate::support::{Limits, await_that, repository};

/// The rule of the rate limit that a job of the messages has.
const RULES: &str = "\
domain: vendor
descriptors:
  - key: tenant
    rate_limit: { unit: second, requests_per_unit: 100 }
";

/// All messages, by the names of their files.
fn messages() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(repository().join("golden/worker"))
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
        .collect();
    files.sort();
    let message = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        (
            path.file_name().unwrap().to_str().unwrap().to_owned(),
            serde_json::from_str(&text).unwrap(),
        )
    };
    files.iter().map(message).collect()
}

/// What texts of the messages stand for in one run.
#[derive(Default)]
struct Meanings(HashMap<String, String>);

impl Meanings {
    /// A text with ids and leases of this run.
    fn translate(&self, text: &str) -> String {
        let mut known: Vec<_> = self.0.iter().collect();
        // A lease begins with an id.
        known.sort_by_key(|(shown, _)| std::cmp::Reverse(shown.len()));
        known.iter().fold(text.to_owned(), |text, (shown, meant)| {
            text.replace(*shown, meant)
        })
    }

    fn compare(&mut self, shown: &Value, got: &Value, at: &str) {
        match (shown, got) {
            (Value::Object(shown), Value::Object(got)) => {
                let names = |object: &serde_json::Map<String, Value>| {
                    object.keys().cloned().collect::<Vec<_>>()
                };
                assert_eq!(names(shown), names(got), "{at}");
                shown.iter().for_each(|(name, shown)| {
                    self.compare(shown, &got[name], &format!("{at}.{name}"))
                });
            }
            (Value::Array(shown), Value::Array(got)) => {
                assert_eq!(shown.len(), got.len(), "{at}: {got:?}");
                let both = shown.iter().zip(got).enumerate();
                both.for_each(|(place, (shown, got))| {
                    self.compare(shown, got, &format!("{at}[{place}]"))
                });
            }
            (Value::String(_), Value::String(got))
                if ["_at", ".at", "since"].iter().any(|end| at.ends_with(end)) =>
            {
                assert!(got.len() == 27 && got.ends_with('Z'), "{at}: {got}");
            }
            (Value::String(_), Value::String(_)) if at.ends_with(".request_id") => {}
            (Value::String(shown), Value::String(got)) if is_of_a_run(shown) => {
                let meant = self.0.entry(shown.clone()).or_insert_with(|| got.clone());
                assert_eq!(meant, got, "{at}");
            }
            _ => assert_eq!(shown, got, "{at}"),
        }
    }
}

/// Whether it is an id or a lease.
fn is_of_a_run(text: &str) -> bool {
    let id = text.split('-').next().unwrap();
    id.len() == 26
        && id
            .chars()
            .all(|letter| letter.is_ascii_digit() || letter.is_ascii_uppercase())
}

#[test]
fn messages_are_those_of_a_real_server() {
    let limits = Limits::new(RULES);
    let root = ("RUNTIME_ROOT", limits.root());
    let redis = redis();
    let url = redis.address().to_string();
    let on_redis = [root, ("REDIS_URL", &url), ("REDIS_SOCKET_TYPE", "tcp")];
    for settings in [&[root][..], &on_redis] {
        let flows = Flows::start(settings);
        let mut meanings = Meanings::default();
        for (file, message) in messages() {
            let text = |name: &str| message[name].as_str().unwrap();
            let body = if message["request"].is_null() {
                String::new()
            } else {
                message["request"].to_string()
            };
            let (path, body) = (meanings.translate(text("path")), meanings.translate(&body));
            let answer = flows.ask(text("method"), &path, &[], &body);
            assert_eq!(message["status"], answer.status, "{file}: {answer:?}");
            meanings.compare(
                &message["answer"],
                &serde_json::from_str(&answer.body).unwrap(),
                &file,
            );
        }
    }
}

#[test]
fn the_page_shows_messages_of_a_real_server() {
    let page = std::fs::read_to_string(repository().join("docs/http-api.md")).unwrap();
    let section = page.split("\n## Worker protocol\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let messages = messages();
    let known: Vec<&Value> = messages
        .iter()
        .flat_map(|(_, message)| [&message["request"], &message["answer"]])
        .collect();
    let shown: Vec<Value> = section
        .split("```json\n")
        .skip(1)
        .map(|rest| serde_json::from_str(rest.split("```").next().unwrap()).unwrap())
        .collect();
    // One block has inputs after a failure, which no message has.
    let unknown: Vec<&Value> = shown.iter().filter(|one| !known.contains(one)).collect();
    assert!(unknown.len() == 1 && shown.len() > 6, "{unknown:?}");
    for (file, message) in &messages {
        let route = route(message);
        assert!(page.contains(&route), "{file}: {route} is not on the page");
    }
}

/// The path without the names that are in it.
fn route(message: &Value) -> String {
    let part = |part: &str| {
        if is_of_a_run(part) {
            "{id}".to_owned()
        } else {
            part.replace("billing-1", "{worker}")
        }
    };
    message["path"]
        .as_str()
        .unwrap()
        .split('/')
        .map(part)
        .collect::<Vec<_>>()
        .join("/")
}

struct Plain(Child);

impl Plain {
    fn start(flows: &Flows) -> Self {
        let mut worker = Command::new("python3");
        worker
            .arg(repository().join("examples/workers/plain.py"))
            .stderr(Stdio::null());
        worker
            .env("TIDEGATE_SERVER", format!("http://{}", flows.api()))
            .env("WORKER_NAME", "plain");
        Self(worker.spawn().unwrap())
    }

    fn ask_to_end(&self) {
        assert!(
            Command::new("kill")
                .arg(self.0.id().to_string())
                .status()
                .unwrap()
                .success()
        );
    }

    fn ends(mut self) {
        let mut code = None;
        await_that("the worker ends", || {
            code = self.0.try_wait().unwrap();
            code.is_some()
        });
        assert_eq!(code.unwrap().code(), Some(0));
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A workflow that sleeps for a minute, once its job runs.
fn sleeper(flows: &Flows) -> String {
    let id =
        flows.create(json!({"name": "sleep", "jobs": [{"name": "s", "handler": "sleep", "params": {"seconds": 60}}]}));
    await_job(flows, &id, "s", "running");
    id
}

fn await_job(flows: &Flows, id: &str, job: &str, state: &str) {
    await_that(state, || {
        flows.get(&format!("/v1/workflows/{id}/jobs/{job}"))["state"] == state
    });
}

fn add(flows: &Flows) -> String {
    flows.create(json!({"name": "add", "jobs": [{"name": "a", "handler": "add", "params": {"numbers": [1, 2, 3]}}]}))
}

#[test]
fn the_plain_worker_has_at_most_a_hundred_lines_and_no_packages() {
    let text = std::fs::read_to_string(repository().join("examples/workers/plain.py")).unwrap();
    assert!(text.lines().count() <= 100);
    let ours = [
        "http.client",
        "json",
        "os",
        "signal",
        "sys",
        "threading",
        "time",
        "urllib.error",
        "urllib.request",
    ];
    let imports = text.lines().filter_map(|line| line.strip_prefix("import "));
    assert!(imports.eq(ours));
}

#[test]
fn the_plain_worker_runs_jobs_stops_what_was_cancelled_and_ends_when_asked_to() {
    let flows = Flows::start(&[]);
    let others =
        flows.create(json!({"name": "others", "jobs": [{"name": "o", "handler": "unknown"}]}));
    let worker = Plain::start(&flows);
    let added = add(&flows);
    await_job(&flows, &added, "a", "succeeded");
    assert_eq!(
        flows.get(&format!("/v1/workflows/{added}/jobs/a"))["output"],
        6
    );
    let slept = sleeper(&flows);
    flows.post(&format!("/v1/workflows/{slept}:cancel"), json!({}));
    await_job(&flows, &add(&flows), "a", "succeeded");
    let failing = flows.create(json!({"name": "add", "jobs": [{"name": "a", "handler": "add"}]}));
    await_job(&flows, &failing, "a", "failed");
    await_job(&flows, &others, "o", "ready");
    // It waits, and has nothing to finish.
    worker.ask_to_end();
    worker.ends();
}

#[test]
fn the_plain_worker_ends_when_it_is_to_drain() {
    let flows = Flows::start(&[]);
    let waits = Plain::start(&flows);
    await_job(&flows, &add(&flows), "a", "succeeded");
    flows.post("/v1/workers/plain:drain", json!({}));
    waits.ends();
    flows.post("/v1/workers/plain:undrain", json!({}));
    let worker = Plain::start(&flows);
    let id = sleeper(&flows);
    flows.post("/v1/workers/plain:drain", json!({}));
    flows.post(&format!("/v1/workflows/{id}:cancel"), json!({}));
    worker.ends();
}

#[test]
fn the_plain_worker_finishes_its_job_before_it_ends() {
    let flows = Flows::start(&[]);
    let worker = Plain::start(&flows);
    let job = json!({"name": "s", "handler": "sleep", "params": {"seconds": 3}});
    let id = flows.create(json!({"name": "sleep", "jobs": [job]}));
    await_job(&flows, &id, "s", "running");
    let shown = || flows.get(&format!("/v1/workflows/{id}/jobs/s"));
    // It is leased before the worker has it. Who has no job yet ends at once.
    let leased = shown()["lease_expires_at"].clone();
    await_that("the worker extends its lease", || {
        shown()["lease_expires_at"] != leased
    });
    worker.ask_to_end();
    worker.ends();
    assert_eq!(shown()["output"], json!({"stopped": false}));
}
