//! Data that Gush wrote, taken over: every workflow, job, state, edge, param and output is what Gush itself reports.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{Arg, Batch, Client, Config};
use tidegate_workflow::{
    Action, Claim, Engine, EngineOptions, GushReport, JobIndex, Outcome, Query, Report, Retention,
    SimulatedStore, Snapshot, Status, Store, Timestamp, import_gush,
};

const TIMEOUT: Duration = Duration::from_secs(10);

fn golden() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "golden", "gush"]
        .iter()
        .collect()
}

/// Long after the dumps were written, long before what is in them expires.
fn now() -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000)
}

struct Import {
    engine: Engine,
    client: Client,
    _server: RedisServer,
}

async fn imported(dump: &str) -> (Import, GushReport) {
    let folder = golden().canonicalize().unwrap();
    let file = format!("{dump}.rdb");
    let server =
        RedisServer::start_with(&["--dir", folder.to_str().unwrap(), "--dbfilename", &file]).await;
    let client = Client::new(Config::single(server.address())).unwrap();
    let engine = Engine::start(
        Store::Simulated(SimulatedStore::new(16)),
        EngineOptions::default(),
    )
    .await
    .unwrap();
    let report = import_gush(&client, &engine, TIMEOUT, now()).await.unwrap();
    (
        Import {
            engine,
            client,
            _server: server,
        },
        report,
    )
}

fn told(dump: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(golden().join(format!("{dump}.json"))).unwrap();
    let told: Value = serde_json::from_str(&text).unwrap();
    told["workflows"].as_array().unwrap().clone()
}

impl Import {
    async fn snapshot(&self, gush_id: &str) -> Snapshot {
        let id = self
            .engine
            .find_by_key(&format!("gush:{gush_id}"))
            .await
            .unwrap()
            .unwrap();
        self.engine.show(id).await.unwrap()
    }

    /// What we have of a workflow, in Gush's words.
    async fn in_gush_words(&self, gush_id: &str) -> Value {
        let snapshot = self.snapshot(gush_id).await;
        let graph = snapshot.graph();
        let all: Vec<JobIndex> = (0..graph.jobs.len())
            .map(|at| JobIndex(at as u32))
            .collect();
        let results = self.engine.results(snapshot.id(), &all).await.unwrap();
        let mut jobs = BTreeMap::new();
        for (index, result) in all.into_iter().zip(results) {
            let about = &graph.jobs[index.index()];
            let job = &snapshot.jobs()[index.index()];
            let (class, id) = about.name.split_once('|').unwrap();
            let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            let output = result
                .output
                .map(|output| parse(std::str::from_utf8(&output).unwrap()));
            let word = job.state.word();
            jobs.insert(
                id.to_owned(),
                json!({
                    "class": class,
                    "handler": about.handler,
                    "finished": matches!(word, "succeeded" | "failed"),
                    "failed": word == "failed",
                    "waiting": word == "waiting",
                    "params": graph.params(index).map_or(json!({}), |params| parse(params.text())),
                    "output": output,
                    "queue": (about.queue != "default").then_some(&about.queue),
                    "incoming": about.parents.len(),
                    "outgoing": graph.children(index).len(),
                }),
            );
        }
        json!({ "class": graph.label.name, "jobs": jobs, "status": snapshot.meta().status.word() })
    }
}

/// What Gush says, in the same form.
fn expected(workflow: &Value) -> Value {
    let jobs = workflow["jobs"].as_array().unwrap();
    let any = |word: &str| jobs.iter().any(|job| job[word] == true);
    let by_id: BTreeMap<&str, Value> = jobs
        .iter()
        .map(|job| {
            let mut job = job.clone();
            let fields = job.as_object_mut().unwrap();
            fields.remove("id");
            let started = fields.remove("enqueued") == Some(json!(true));
            fields.insert("handler".to_owned(), fields["class"].clone());
            fields.insert(
                "waiting".to_owned(),
                json!(!started && fields["finished"] != true),
            );
            job
        })
        .zip(jobs)
        .map(|(job, original)| (original["id"].as_str().unwrap(), job))
        .collect();
    let status = match workflow["status"].as_str().unwrap() {
        "finished" => "succeeded",
        "failed" => "failed",
        // Gush has no word for a workflow that was started and of which no job runs; the older one calls all others running.
        _ if any("enqueued") => "running",
        _ => "pending",
    };
    json!({ "class": workflow["class"], "jobs": by_id, "status": status })
}

async fn check(dump: &str) {
    let (import, report) = imported(dump).await;
    let told = told(dump);
    let jobs: usize = told
        .iter()
        .map(|workflow| workflow["jobs"].as_array().unwrap().len())
        .sum();
    assert_eq!(
        (report.created, report.existing, report.jobs),
        (told.len() as u64, 0, jobs as u64),
        "{report:?}"
    );
    assert_eq!(report.skipped, []);
    for workflow in &told {
        let id = workflow["id"].as_str().unwrap();
        assert_eq!(
            import.in_gush_words(id).await,
            expected(workflow),
            "{dump} {id}"
        );
    }
    let again = import_gush(&import.client, &import.engine, TIMEOUT, now())
        .await
        .unwrap();
    assert_eq!((again.created, again.existing), (0, told.len() as u64));
    for workflow in &told {
        let id = workflow["id"].as_str().unwrap();
        assert_eq!(
            import.in_gush_words(id).await,
            expected(workflow),
            "{dump} {id}"
        );
    }
    finish_all(&import).await;
}

/// Starts or retries everything and works until nothing is left.
async fn finish_all(import: &Import) {
    let engine = &import.engine;
    let all = Query {
        limit: 100,
        ..Query::default()
    };
    let page = engine.list(&all).await.unwrap();
    for listed in &page.items {
        match listed.meta.status {
            Status::Pending => engine.act(listed.workflow, Action::Start, now()).await,
            Status::Failed => {
                engine
                    .act(listed.workflow, Action::RetryFailed, now())
                    .await
            }
            status => Ok(status),
        }
        .unwrap();
    }
    let queues = vec!["default".to_owned(), "mail".to_owned()];
    let claim = Claim {
        queues,
        handlers: None,
        worker: "test".to_owned(),
        limit: 100,
        lease: TIMEOUT,
    };
    for round in 1.. {
        // Each round is later than any job of the dumps waits.
        let now = now() + TIMEOUT * round;
        engine.sweep(now).await.unwrap();
        let claimed = engine.claim(&claim, now).await.unwrap();
        if claimed.is_empty() {
            break;
        }
        let done = |lease| Report {
            lease,
            outcome: Outcome::Succeeded { output: None },
        };
        let reports = claimed.iter().map(|claimed| done(claimed.lease)).collect();
        let (reported, _) = engine.report(reports, None, now).await;
        assert!(reported.iter().all(Result::is_ok), "{reported:?}");
    }
    let page = engine.list(&all).await.unwrap();
    let unfinished: Vec<_> = page
        .items
        .iter()
        .filter(|listed| listed.meta.status != Status::Succeeded)
        .collect();
    assert!(
        unfinished.is_empty() && page.items.len() == 33,
        "{unfinished:?}"
    );
}

#[tokio::test]
async fn data_of_gush_5_is_taken_over_as_it_is() {
    check("gush-5.0").await;
}

#[tokio::test]
async fn data_of_gush_3_is_taken_over_without_its_indexes() {
    check("gush-3.0").await;
}

#[tokio::test]
async fn creation_and_expiry_are_kept() {
    let (import, _) = imported("gush-5.0").await;
    let oldest = import
        .snapshot("70cced78-757c-4d41-950f-1156e1c15cf2")
        .await;
    assert_eq!(
        oldest.meta().created_at,
        Timestamp::from_micros(1_795_237_773_380_002)
    );
    assert_eq!(oldest.id().created_at(), oldest.meta().created_at);
    let expiring = import
        .snapshot("679b55d4-19d2-440e-b1aa-6b798ae4153c")
        .await;
    let expires = Timestamp::from_micros(2_110_597_773_382_663);
    assert_eq!(
        expiring.meta().retention,
        Some(Retention::For(expires.since(now())))
    );
    let (older, _) = imported("gush-3.0").await;
    let unlimited = older.snapshot("067d1b12-f771-4605-bff5-039069a7a866").await;
    assert_eq!(unlimited.meta().retention, Some(Retention::Forever));
    let limited = older.snapshot("c3823d94-c0e2-4514-8816-c200f538c653").await;
    assert!(
        matches!(limited.meta().retention, Some(Retention::For(_))),
        "{:?}",
        limited.meta()
    );
}

/// Writes a workflow as Gush does: a job without an output, and one that has `output`.
async fn put_workflow(client: &Client, id: &str, params: Value, output: Value) {
    let workflow = json!({"id": id, "klass": "Flow", "job_klasses": ["Job"]}).to_string();
    let job = |id: &str, output: &Value| {
        let times = if output.is_null() {
            Value::Null
        } else {
            json!(1_795_000_000.0)
        };
        json!({"id": id, "klass": "Job", "params": params, "output_payload": output,
            "enqueued_at": times, "started_at": times, "finished_at": times})
    };
    let mut batch = Batch::new();
    let key = format!("gush.workflows.{id}");
    batch.unit().repeatable(
        "SET",
        &[Arg::Key(key.as_bytes()), Arg::Bytes(workflow.as_bytes())],
    );
    let key = format!("gush.jobs.{id}.Job");
    for (name, output) in [("small", &Value::Null), ("large", &output)] {
        let job = job(name, output).to_string();
        batch.unit().repeatable(
            "HSET",
            &[
                Arg::Key(key.as_bytes()),
                Arg::Bytes(name.as_bytes()),
                Arg::Bytes(job.as_bytes()),
            ],
        );
    }
    let outcomes = client
        .send(batch, std::time::Instant::now() + TIMEOUT)
        .await;
    assert!(outcomes.iter().all(|outcome| outcome.reply().is_ok()));
}

/// What is larger than any client may send was imported, and claims carried it.
#[tokio::test]
async fn workflows_with_more_than_a_worker_may_be_given_are_left_as_a_whole() {
    let server = RedisServer::start().await;
    let client = Client::new(Config::single(server.address())).unwrap();
    let set = async |id, params, output| put_workflow(&client, id, params, output).await;
    let text = |bytes: usize| json!("x".repeat(bytes - 2));
    let deep = (0..101).fold(json!(1), |inside, _| json!([inside]));
    set("fits", json!({}), text(1 << 20)).await;
    set("output", json!({}), text((1 << 20) + 1)).await;
    set("params", json!({"a": text(256 << 10)}), json!(1)).await;
    set("deep", json!({}), deep).await;
    let engine = Engine::start(
        Store::Simulated(SimulatedStore::new(16)),
        EngineOptions::default(),
    )
    .await
    .unwrap();
    let report = import_gush(&client, &engine, TIMEOUT, now()).await.unwrap();
    assert_eq!((report.created, report.skipped.len()), (1, 3), "{report:?}");
    for (id, reason) in [
        (
            "output",
            "job Job|large has an output of more than 1048576 bytes",
        ),
        (
            "params",
            "has params and globals of more than 262144 bytes; job Job|",
        ),
        (
            "deep",
            "job Job|large has JSON that is nested more than 100 levels deep",
        ),
    ] {
        let left = report
            .skipped
            .iter()
            .find(|(key, _)| *key == format!("gush.workflows.{id}"))
            .unwrap();
        assert!(left.1.contains(reason), "{left:?}");
        assert_eq!(engine.find_by_key(&format!("gush:{id}")).await, Ok(None));
    }
}
