//! The store of each format that was released is read as it was meant, goes on, and can be migrated.

mod migration;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::{
    Action, Claim, ConcurrencyScope, Engine, EngineError, Format, JobIndex, LeaseRef,
    LimitDefinition, Outcome, Partition, RedisOptions, RedisStore, Register, RowSet, Snapshot,
    SqliteOptions, SqliteStore, StartMode, Status, Store, Timestamp, WorkflowId,
};

use crate::model::check::whole_store;
use crate::support::{create, create_of, definition, report, server};

fn golden(name: &str) -> String {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "golden", "stores"]
        .iter()
        .collect();
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn expected(kind: &str) -> Value {
    serde_json::from_str(&golden(&format!("1-{kind}.json"))).unwrap()
}

/// The golden store in Redis, with another schema version.
async fn in_redis(schema: u32) -> (Store, RedisServer) {
    let redis = RedisServer::start().await;
    let replies = redis.raw(golden("1-redis.txt").trim_end());
    assert!(!replies.contains("-ERR"), "{replies}");
    let _ = redis.raw(&format!("HSET tg:meta schema {schema}"));
    (opened(&redis).await, redis)
}

async fn opened(redis: &RedisServer) -> Store {
    // Another number of partitions: the store keeps its own.
    let options = RedisOptions::new("tg:", 16, Duration::from_secs(5)).unwrap();
    let client = Client::new(redis.config()).unwrap();
    Store::Redis(RedisStore::open(client, options).await.unwrap())
}

/// The golden store in a file, with another schema version.
fn in_sqlite(schema: u32) -> (Store, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("workflows.db");
    let file = Connection::open(&path).unwrap();
    file.execute_batch(&golden("1-sqlite.sql")).unwrap();
    file.pragma_update(None, "user_version", schema).unwrap();
    drop(file);
    (open_sqlite(folder.path()), folder)
}

fn open_sqlite(folder: &Path) -> Store {
    let options = SqliteOptions::new(16).unwrap();
    Store::Sqlite(SqliteStore::open(&folder.join("workflows.db"), &options).unwrap())
}

/// What was told of each workflow, by its id.
fn told(expected: &Value) -> impl Iterator<Item = (WorkflowId, &Value)> {
    let workflows = expected["workflows"].as_object().unwrap().values();
    workflows.map(|told| (told["id"].as_str().unwrap().parse().unwrap(), told))
}

/// What we read of a job, as far as something was told of it.
async fn read(engine: &Engine, snapshot: &Snapshot, at: usize, told: &Value) -> Value {
    let job = &snapshot.jobs()[at];
    let about = &snapshot.graph().jobs[at];
    let result = engine
        .results(snapshot.id(), &[JobIndex(at as u32)])
        .await
        .unwrap()
        .remove(0);
    let text = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
    let errors = result.errors.iter();
    let errors = errors
        .map(|error| json!({ "kind": error.kind, "message": error.message, "trace": error.trace }));
    let mut all = json!({
        "name": about.name, "state": job.state.word(), "attempt": job.attempt, "lost": job.lost, "worker": job.worker,
        "output": result.output.map(|output| text(&output)), "errors": errors.collect::<Vec<_>>(), "queue": about.queue,
        "priority": about.priority, "retries": about.retry.limit, "wait_ms": about.wait.as_millis() as u64,
        "timeout_ms": about.timeout.map(|timeout| timeout.as_millis() as u64),
        "params": snapshot.graph().params(JobIndex(at as u32)).map(|params| text(params.text().as_bytes())),
        "blocked": snapshot.is_blocked(JobIndex(at as u32)), "rule": told["rule"],
    });
    all.as_object_mut()
        .unwrap()
        .retain(|field, _| told.get(field).is_some());
    all
}

async fn check_states(engine: &Engine, expected: &Value) {
    for (id, told) in told(expected) {
        let snapshot = engine.show(id).await.unwrap();
        assert_eq!(snapshot.meta().status.word(), told["status"], "{id}");
        let jobs = told["jobs"].as_array().unwrap();
        assert_eq!(snapshot.jobs().len(), jobs.len());
        for (at, told) in jobs.iter().enumerate() {
            assert_eq!(
                read(engine, &snapshot, at, told).await,
                *told,
                "job {at} of {id}"
            );
        }
    }
}

fn lease(expected: &Value, name: &str) -> LeaseRef {
    expected["leases"][name].as_str().unwrap().parse().unwrap()
}

/// Seconds, for helpers that count from the first moment of the tests, long after everything was written.
const LATER: u64 = 100_000_000;

/// Workers, with leases from before and with new ones, and operators bring everything to its end.
async fn goes_on(engine: &Engine, expected: &Value) {
    let success = || Outcome::Succeeded { output: None };
    let b = report(engine, lease(expected, "b"), success(), 0)
        .await
        .unwrap();
    assert_eq!((b.workflow, b.already), (Status::Running, false));
    assert!(
        report(engine, lease(expected, "done"), success(), 0)
            .await
            .unwrap()
            .already
    );
    for (name, value) in engine.store().register(Register::Queues).await.unwrap() {
        assert_eq!(value == "paused", name == "q other", "{name}: {value:?}");
        engine
            .set_queue_paused(&name, tidegate_workflow::Paused::No)
            .await
            .unwrap();
    }
    for (id, told) in told(expected) {
        let now = crate::support::at(0);
        match told["status"].as_str().unwrap() {
            "pending" => drop(engine.act(id, Action::Start, now).await.unwrap()),
            "paused" => drop(engine.act(id, Action::Resume, now).await.unwrap()),
            "failed" | "cancelled" => drop(engine.act(id, Action::RetryFailed, now).await.unwrap()),
            _ => {}
        }
    }
    work_off(engine).await;
    for (id, told) in told(expected) {
        match engine.show(id).await {
            Ok(snapshot) => assert!(
                snapshot.meta().status.is_over(),
                "{id}: {:?}",
                snapshot.states()
            ),
            // It had succeeded before, and was kept for days.
            Err(error) => {
                assert_eq!(
                    (&told["status"], error),
                    (
                        &json!("succeeded"),
                        EngineError::NoWorkflow { workflow: id }
                    )
                )
            }
        }
    }
}

async fn work_off(engine: &Engine) {
    let queues: Vec<String> = engine
        .queue_states()
        .await
        .unwrap()
        .found
        .into_iter()
        .map(|queue| queue.name)
        .collect();
    let mut seconds = LATER;
    loop {
        let now = crate::support::at(seconds);
        while engine.sweep(now).await.unwrap() {}
        let claim = Claim {
            queues: queues.clone(),
            handlers: None,
            worker: "w".to_owned(),
            limit: 100,
            lease: Duration::from_secs(30),
        };
        let claimed = engine.claim(&claim, now).await.unwrap();
        for claimed in &claimed {
            report(
                engine,
                claimed.lease,
                Outcome::Succeeded { output: None },
                seconds,
            )
            .await
            .unwrap();
        }
        if claimed.is_empty() && seconds > LATER + 3 {
            return;
        }
        seconds += 1;
    }
}

/// The ids of all workflows of a partition.
async fn ids_in(store: &Store, partition: Partition) -> Vec<WorkflowId> {
    let rows = store.rows(partition, RowSet::Index, None, 10_000).await;
    let mut ids: Vec<WorkflowId> = rows
        .unwrap()
        .iter()
        .filter_map(|row| tidegate_workflow::rows::workflow_in_row(row))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// All records in the store are in its format.
async fn check_format(store: &Store, format: Format) {
    for partition in (0..store.partitions()).map(Partition) {
        let ids = ids_in(store, partition).await;
        for head in store.summaries(&ids).await.into_iter().flatten().flatten() {
            assert_eq!(format_of_record(&head.meta), format);
            assert_eq!(format_of_record(&head.label), format);
        }
        for stored in store.load(&ids).await.unwrap().into_iter().flatten() {
            assert_eq!(format_of_record(&stored.graph), format);
            for (job, state) in &stored.state.jobs {
                assert_eq!(format_of_record(state), format, "job {job}");
            }
        }
    }
}

fn format_of_record(record: &[u8]) -> Format {
    match record {
        [mark, 0, ..] if *mark >= 0x80 => Format::from_schema((mark & 0x7f).into()).unwrap(),
        _ => panic!("no record begins like {:?}", &record[..2]),
    }
}

async fn check(store: Store, expected: &Value) {
    assert_eq!(store.format(), Format::LATEST);
    assert_eq!(store.partitions(), 4);
    let engine = server(&store).await;
    check_states(&engine, expected).await;
    check_format(&store, Format::LATEST).await;
    whole_store(&engine).await;
    let new = create(&engine, "a b<a", StartMode::Now).await;
    let mut limited = definition("a b");
    limited.jobs[1].limits = vec![LimitDefinition::Concurrency {
        most: 2,
        of: ConcurrencyScope::Workflow,
        entries: Vec::new(),
    }];
    create_of(&engine, limited, StartMode::Now).await;
    goes_on(&engine, expected).await;
    assert_eq!(
        engine.show(new).await.unwrap().meta().status,
        Status::Succeeded
    );
    check_format(&store, Format::LATEST).await;
    whole_store(&engine).await;
    // What is over is removed at its time, with all that belongs to it.
    let end = Timestamp::from_micros(u64::MAX / 4);
    while engine.sweep(end).await.unwrap() {}
    assert!(
        whole_store(&engine)
            .await
            .values()
            .all(|kept| kept.meta().expires_at.is_none())
    );
}

#[tokio::test]
async fn a_store_in_redis_is_read_and_goes_on() {
    let (store, _redis) = in_redis(1).await;
    check(store, &expected("redis")).await;
}

#[tokio::test]
async fn a_store_in_sqlite_is_read_and_goes_on() {
    let (store, _folder) = in_sqlite(1);
    check(store, &expected("sqlite")).await;
}
