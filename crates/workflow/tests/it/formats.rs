//! Stores of every format that was ever written are read as they were meant, go on, and keep their format.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::change::Delete;
use tidegate_workflow::rows::{ReadyEntry, Row};
use tidegate_workflow::{
    Action, Begin, Claim, Engine, EngineError, Format, JobIndex, LeaseRef, LimitDefinition,
    NewWorkflow, Outcome, Partition, RedisOptions, RedisStore, Register, RowSet, Scope, Snapshot,
    SqliteOptions, SqliteStore, Status, Store, Timestamp, WorkflowId,
};

use crate::model::check::whole_store;
use crate::support::{create, definition, new, report, server};

/// All formats, with the number that the names of their files begin with.
const FORMATS: [(Format, u8); 4] = [
    (Format::First, 1),
    (Format::Second, 2),
    (Format::Third, 3),
    (Format::Fourth, 4),
];

fn golden(name: &str) -> String {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "golden", "stores"]
        .iter()
        .collect();
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

async fn in_redis(number: u8) -> (Store, RedisServer) {
    in_redis_then(number, "PING").await
}

/// The same after another command.
async fn in_redis_then(number: u8, command: &str) -> (Store, RedisServer) {
    let redis = RedisServer::start().await;
    let replies = redis.raw(golden(&format!("{number}-redis.txt")).trim_end());
    assert!(!replies.contains("-ERR"), "{replies}");
    let _ = redis.raw(command);
    // Another number of partitions: the store keeps its own.
    let options = RedisOptions::new("tg:", 16, Duration::from_secs(5)).unwrap();
    let client = Client::new(redis.config()).unwrap();
    (
        Store::Redis(RedisStore::open(client, options).await.unwrap()),
        redis,
    )
}

fn in_sqlite(number: u8) -> (Store, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("workflows.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch(&golden(&format!("{number}-sqlite.sql")))
        .unwrap();
    (
        Store::Sqlite(SqliteStore::open(&path, &SqliteOptions::new(16).unwrap()).unwrap()),
        folder,
    )
}

/// What was told of each workflow, by its id.
fn told(expected: &Value) -> impl Iterator<Item = (WorkflowId, &Value)> {
    let workflows = expected["workflows"].as_object().unwrap().values();
    workflows.map(|told| (told["id"].as_str().unwrap().parse().unwrap(), told))
}

/// What we read of a job, as far as something was told of it.
async fn read(engine: &Engine, snapshot: &Snapshot, at: usize, told: &Value) -> Value {
    let (job, about) = (&snapshot.jobs()[at], &snapshot.graph().jobs[at]);
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

/// Everything in the store is as its format says.
async fn check_format(store: &Store, format: Format) {
    let mut ids = Vec::new();
    for partition in 0..store.partitions() {
        let rows = |set| store.rows(Partition(partition), set, None, 10_000);
        for row in rows(RowSet::Ready).await.unwrap() {
            let expected = if format == Format::Third {
                Format::Second
            } else {
                format
            };
            assert_eq!(format_of_ready(&row), expected);
        }
        let index: Vec<Row> = rows(RowSet::Index).await.unwrap();
        ids.extend(
            index
                .iter()
                .filter_map(|row| tidegate_workflow::rows::workflow_of(row)),
        );
    }
    for head in store
        .heads(&ids)
        .await
        .into_iter()
        .filter_map(Result::unwrap)
    {
        assert_eq!(
            (format_of_record(&head.meta), format_of_record(&head.label)),
            (format, format)
        );
    }
    for stored in store.load(&ids).await.unwrap().into_iter().flatten() {
        assert_eq!(format_of_record(&stored.graph), format);
        for (job, state) in &stored.state.jobs {
            assert_eq!(format_of_record(state), format, "job {job}");
        }
    }
}

fn format_of_record(record: &[u8]) -> Format {
    match record {
        [0x82, 0, ..] => Format::Second,
        [0x83, 0, ..] => Format::Third,
        [0x84, 0, ..] => Format::Fourth,
        _ => Format::First,
    }
}

/// After the queue: priority, time, workflow and 16 bits of the job; or an empty text and 32 bits; or the handler and 32 bits.
fn format_of_ready(row: &[u8]) -> Format {
    let queue = row.iter().position(|&byte| byte == 0).unwrap();
    match &row[queue + 1..] {
        tail if tail.len() == 27 => Format::First,
        [0, ..] => Format::Second,
        _ => Format::Fourth,
    }
}

/// A workflow of two jobs, of which the second has a limit.
fn limited() -> NewWorkflow {
    let mut definition = definition("a b");
    definition.jobs[1].limits = vec![LimitDefinition::Concurrency {
        most: 2,
        of: Scope::Workflow,
        entries: Vec::new(),
    }];
    new(definition, Begin::Now)
}

/// The ready rows of a workflow: the handler and the limit key of each.
async fn lanes(store: &Store, id: WorkflowId) -> Vec<(String, String)> {
    let rows = store
        .rows(id.partition(), RowSet::Ready, None, 10_000)
        .await
        .unwrap();
    let entries = rows
        .iter()
        .map(|row| ReadyEntry::read(row).unwrap())
        .filter(|entry| entry.workflow == id);
    entries
        .map(|entry| (entry.handler, entry.limit_key))
        .collect()
}

async fn check(store: Store, format: Format, expected: &Value) {
    assert_eq!(store.format(), format);
    assert_eq!(store.partitions(), 4);
    let engine = server(&store).await;
    check_states(&engine, expected).await;
    check_format(&store, format).await;
    whole_store(&engine).await;
    let new = create(&engine, "a b<a", Begin::Now).await;
    let created = engine
        .create(
            vec![limited(), self::new(definition("a"), Begin::Later)],
            crate::support::at(0),
        )
        .await;
    match format {
        Format::Fourth => assert!(created[0].is_ok()),
        _ => assert_eq!(created[0], Err(EngineError::NoLimits { job: 1 })),
    }
    assert!(created[1].is_ok());
    check_format(&store, format).await;
    goes_on(&engine, expected).await;
    assert_eq!(
        engine.show(new).await.unwrap().meta().status,
        Status::Succeeded
    );
    check_format(&store, format).await;
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
async fn stores_of_every_format_in_redis_are_read_and_go_on() {
    for (format, number) in FORMATS {
        let (store, _redis) = in_redis(number).await;
        check(
            store,
            format,
            &serde_json::from_str(&golden(&format!("{number}-redis.json"))).unwrap(),
        )
        .await;
    }
}

#[tokio::test]
async fn stores_of_every_format_in_sqlite_are_read_and_go_on() {
    for (format, number) in FORMATS {
        let (store, _folder) = in_sqlite(number);
        check(
            store,
            format,
            &serde_json::from_str(&golden(&format!("{number}-sqlite.json"))).unwrap(),
        )
        .await;
    }
}

/// Everything of an earlier format is written again.
async fn rewrite(store: &Store) -> u64 {
    let mut done = 0;
    for partition in (0..store.partitions()).map(Partition) {
        let mut after = None;
        loop {
            let page = store.earlier(partition, after.as_ref()).await.unwrap();
            let rewritten = store
                .rewrite(partition, &page.ids, crate::support::at(0))
                .await
                .unwrap();
            assert_eq!(rewritten.unreadable, []);
            done += rewritten.done;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    done
}

/// No error of an attempt is left that an earlier format wrote.
async fn check_errors(store: &Store, expected: &Value) -> usize {
    let mut errors = 0;
    for (id, told) in told(expected) {
        let jobs = told["jobs"].as_array().unwrap().len() as u32;
        let places = (0..jobs).flat_map(|job| (0..10).map(move |place| (JobIndex(job), place)));
        let fields = places
            .map(|(job, place)| tidegate_workflow::change::ResultField::Error(job, place))
            .collect();
        for error in store
            .results(&[(id, fields)])
            .await
            .unwrap()
            .remove(0)
            .into_iter()
            .flatten()
        {
            assert_eq!(format_of_record(&error), Format::LATEST);
            errors += 1;
        }
    }
    errors
}

/// A job with limits has them also where a server changes its workflow that has not noticed the migration yet.
async fn check_limits(engine: &Engine, other: &Store) {
    let created = server(other)
        .await
        .create(vec![limited()], crate::support::at(0))
        .await
        .remove(0);
    let id = created.unwrap().workflow;
    for action in [Action::Pause, Action::Resume] {
        engine.act(id, action, crate::support::at(0)).await.unwrap();
    }
    engine
        .repair(id, Delete::default(), crate::support::at(0))
        .await
        .unwrap();
    engine.repair_key(id, crate::support::at(0)).await.unwrap();
    let key = format!(r#"[[2,"workflow:{id}"]]"#);
    let rows = lanes(other, id).await;
    assert_eq!(
        rows.iter()
            .filter(|(handler, found)| (&**handler, found) == ("handler", &key))
            .count(),
        1,
        "{rows:?}"
    );
    assert_eq!(
        rows.iter().filter(|(_, found)| found.is_empty()).count(),
        1,
        "only one has no limits: {rows:?}"
    );
    let snapshot = server(other).await.show(id).await.unwrap();
    assert!(snapshot.graph().limits(JobIndex(1)).is_some());
}

/// `store` is what a server has open, and `other` what the command has.
async fn check_migration((store, other): (Store, Store), expected: &Value) {
    let engine = server(&store).await;
    let before = create(&engine, "a b<a", Begin::Now).await;
    let cancelled = create(&engine, "a b<a", Begin::Now).await;
    assert!(!other.is_latest());
    other.begin_migration().await.unwrap();
    // The server has not noticed it yet: it goes on in the format that it knows, also with rows that it did not write.
    assert!(rewrite(&other).await > 0);
    whole_store(&server(&other).await).await;
    check_states(&engine, expected).await;
    check_limits(&engine, &other).await;
    create(&engine, "a b<a", Begin::Now).await;
    engine
        .act(before, Action::Pause, crate::support::at(0))
        .await
        .unwrap();
    engine
        .act(before, Action::Resume, crate::support::at(0))
        .await
        .unwrap();
    engine
        .act(cancelled, Action::Cancel, crate::support::at(0))
        .await
        .unwrap();
    engine.look_around().await.unwrap();
    assert_eq!(store.format(), Format::LATEST);
    assert!(store.is_migrating());
    let late = create(&engine, "a b<a", Begin::Now).await;
    // The migration was stopped, and begins again.
    other.begin_migration().await.unwrap();
    let again = rewrite(&other).await > 0;
    // A file has one server, which is told at once.
    assert_eq!(again, matches!(store, Store::Redis(_)));
    assert_eq!(rewrite(&other).await, 0);
    other.end_migration().await.unwrap();
    engine.look_around().await.unwrap();
    assert!(store.is_latest() && other.is_latest());
    check_format(&store, Format::LATEST).await;
    assert!(check_errors(&store, expected).await > 0);
    check_states(&engine, expected).await;
    whole_store(&engine).await;
    goes_on(&engine, expected).await;
    for id in [before, late] {
        assert_eq!(
            engine.show(id).await.unwrap().meta().status,
            Status::Succeeded
        );
    }
    check_format(&store, Format::LATEST).await;
    whole_store(&engine).await;
}

#[tokio::test]
async fn stores_of_earlier_formats_are_migrated_beside_a_server() {
    for number in [1, 2, 3] {
        let expected =
            |kind| serde_json::from_str(&golden(&format!("{number}-{kind}.json"))).unwrap();
        let (store, redis) = in_redis(number).await;
        let options = RedisOptions::new("tg:", 16, Duration::from_secs(5)).unwrap();
        let other = RedisStore::open(Client::new(redis.config()).unwrap(), options)
            .await
            .unwrap();
        check_migration((store, Store::Redis(other)), &expected("redis")).await;
        // Only one process has a file open.
        let (store, _folder) = in_sqlite(number);
        check_migration((store.clone(), store), &expected("sqlite")).await;
    }
}

/// An earlier version began to migrate the store to its latest format, and was stopped.
#[tokio::test]
async fn a_migration_to_an_earlier_format_goes_on_to_the_latest() {
    let (store, _redis) = in_redis_then(1, "HSET tg:meta schema 3 migrates_from 1").await;
    let engine = server(&store).await;
    assert_eq!(
        (store.format(), store.is_migrating()),
        (Format::Third, true)
    );
    // In the third format, which is beside the first then.
    let id = create(&engine, "a b", Begin::Now).await;
    store.begin_migration().await.unwrap();
    assert_eq!(
        (store.format(), store.is_migrating()),
        (Format::LATEST, true)
    );
    engine
        .act(id, Action::Pause, crate::support::at(0))
        .await
        .unwrap();
    assert_eq!(lanes(&store, id).await, [], "whatever format they were in");
    engine
        .act(id, Action::Resume, crate::support::at(0))
        .await
        .unwrap();
    assert!(rewrite(&store).await > 0);
    store.end_migration().await.unwrap();
    check_format(&store, Format::LATEST).await;
    whole_store(&engine).await;
}
