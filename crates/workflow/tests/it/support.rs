//! Words that tests of the engine share.

use std::time::Duration;

use tempfile::TempDir;
use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::{
    Claim, Claimed, Definition, Engine, EngineError, EngineOptions, Failure, Graph, JobDefinition,
    JobState, Json, LeaseRef, NewWorkflow, Outcome, RedisOptions, RedisStore, Report, ReportAnswer,
    RetryWish, SimulatedStore, Snapshot, SqliteOptions, SqliteStore, StartMode, Store, Timestamp,
    WorkflowId,
};

/// Tests of these behaviours over every store: functions of the module that take a store.
macro_rules! on_every_store {
    ($($behaviour:ident)*) => { on_every_store! { @ simulated: $($behaviour)* } on_every_store! { @ sqlite: $($behaviour)* }
        on_every_store! { @ redis: $($behaviour)* } };
    (@ $store:ident: $($behaviour:ident)*) => {
        mod $store {
            $(
                #[tokio::test]
                async fn $behaviour() {
                    let (store, _guard) = crate::support::$store().await;
                    super::$behaviour(store).await;
                }
            )*
        }
    };
}

/// The same over the stores that several servers can share.
macro_rules! on_every_shared_store {
    ($($behaviour:ident)*) => { on_every_store! { @ simulated: $($behaviour)* } on_every_store! { @ redis: $($behaviour)* } };
}

pub(crate) const LEASE: Duration = Duration::from_secs(30);
const PARTITIONS: u16 = 4;

pub(crate) async fn simulated() -> (Store, ()) {
    (Store::Simulated(SimulatedStore::new(PARTITIONS)), ())
}

pub(crate) async fn sqlite() -> (Store, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions::new(PARTITIONS).unwrap();
    (
        Store::Sqlite(SqliteStore::open(&directory.path().join("test.db"), &options).unwrap()),
        directory,
    )
}

pub(crate) async fn redis() -> (Store, RedisServer) {
    let server = RedisServer::start().await;
    let options = RedisOptions::new("test:", PARTITIONS, Duration::from_secs(5)).unwrap();
    let client = Client::new(server.config()).unwrap();
    (
        Store::Redis(RedisStore::open(client, options).await.unwrap()),
        server,
    )
}

/// A moment of these tests.
pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros((1_795_000_000 + seconds) * 1_000_000)
}

pub(crate) async fn server(store: &Store) -> Engine {
    Engine::start(store.clone(), EngineOptions::default())
        .await
        .unwrap()
}

/// Jobs as `name` or `name<parent,parent`.
pub(crate) fn definition(jobs: &str) -> Definition {
    let jobs = jobs.split(' ').map(|job| {
        let (name, after) = job.split_once('<').unwrap_or((job, ""));
        let after = after
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        JobDefinition {
            after,
            ..JobDefinition::new(name, "handler")
        }
    });
    Definition {
        name: "test".to_owned(),
        jobs: jobs.collect(),
        ..Definition::default()
    }
}

pub(crate) fn new(definition: Definition, begin: StartMode) -> NewWorkflow {
    NewWorkflow {
        graph: Graph::build(definition).unwrap(),
        start: begin,
        created_at: None,
    }
}

pub(crate) async fn create(engine: &Engine, jobs: &str, begin: StartMode) -> WorkflowId {
    create_of(engine, definition(jobs), begin).await
}

pub(crate) async fn create_of(
    engine: &Engine,
    definition: Definition,
    begin: StartMode,
) -> WorkflowId {
    engine
        .create(vec![new(definition, begin)], at(0))
        .await
        .remove(0)
        .unwrap()
        .workflow
}

pub(crate) fn claim(limit: usize) -> Claim {
    let queues = vec!["default".to_owned()];
    let worker = "worker".to_owned();
    Claim {
        queues,
        handlers: None,
        worker,
        limit,
        lease: LEASE,
    }
}

/// All that is ready in the store.
pub(crate) async fn take(engine: &Engine, seconds: u64) -> Vec<Claimed> {
    engine.poll_store().await.unwrap();
    engine.claim(&claim(1_000), at(seconds)).await.unwrap()
}

pub(crate) fn names(claimed: &[Claimed]) -> Vec<&str> {
    let mut names: Vec<&str> = claimed
        .iter()
        .map(|claimed| claimed.job().name.as_str())
        .collect();
    names.sort_unstable();
    names
}

pub(crate) async fn report(
    engine: &Engine,
    lease: LeaseRef,
    outcome: Outcome,
    seconds: u64,
) -> Result<ReportAnswer, EngineError> {
    let (mut reported, claimed) = engine
        .report(vec![Report { lease, outcome }], None, at(seconds))
        .await;
    assert_eq!(claimed.map(|claimed| claimed.len()), Ok(0));
    reported.remove(0)
}

pub(crate) fn success(output: &str) -> Outcome {
    Outcome::Succeeded {
        output: Some(Json::parse(output).unwrap()),
    }
}

pub(crate) fn failure() -> Outcome {
    Outcome::Failed {
        failure: Failure::default(),
        retry: RetryWish::ByPolicy,
    }
}

pub(crate) async fn succeed(
    engine: &Engine,
    lease: LeaseRef,
    seconds: u64,
) -> Result<JobState, EngineError> {
    report(engine, lease, success("1"), seconds)
        .await
        .map(|reported| reported.job)
}

/// What a job is doing, in the word for it.
pub(crate) fn state(snapshot: &Snapshot, name: &str) -> &'static str {
    snapshot.jobs()[snapshot.graph().find(name).unwrap().index()]
        .state
        .word()
}
