//! Tests: chunked writes that are stopped at any moment.

use std::sync::Arc;

use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisServer;

use super::*;
use crate::engine::actor::request::Action;
use crate::engine::{Claim, Engine, EngineOptions};
use crate::graph::{Definition, Graph, JobDefinition};
use crate::machine::transition::transition;
use crate::machine::{Event, Workflow};
use crate::model::{RetentionDefaults, Status, Timestamp};
use crate::store::{RedisOptions, Store};

const JOBS: usize = 3 * MAX_INLINE;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros((1_795_000_000 + seconds) * 1_000_000)
}

async fn open() -> (RedisStore, Engine, RedisServer) {
    let server = RedisServer::start().await;
    let options = RedisOptions::new("t:", 1, Duration::from_secs(5)).unwrap();
    let store = RedisStore::open(Client::new(server.config()).unwrap(), options)
        .await
        .unwrap();
    let engine = Engine::start(Store::Redis(store.clone()), EngineOptions::default())
        .await
        .unwrap();
    (store, engine, server)
}

/// A workflow of many jobs that starts, and the change that writes it.
fn started() -> (WorkflowId, Change) {
    let jobs = (0..JOBS)
        .map(|at| JobDefinition::new(at.to_string(), "handler"))
        .collect();
    let graph = Graph::build(Definition {
        name: "w".to_owned(),
        jobs,
        ..Definition::default()
    })
    .unwrap();
    let id = WorkflowId::new(at(0), Partition(0), 7);
    let mut workflow = Workflow::new(id, Arc::new(graph), at(0));
    transition(
        &mut workflow,
        &Event::Start,
        RetentionDefaults::default(),
        at(0),
    )
    .unwrap();
    let style = crate::machine::WriteOptions {
        format: crate::codec::Format::LATEST,
        max_inline: MAX_INLINE,
    };
    let change = workflow.change(5, style, at(0)).unwrap();
    (id, change)
}

fn put(change: &Change) -> &Put {
    let Write::Put(put) = &change.write else {
        panic!("it removes")
    };
    put
}

fn rows(server: &RedisServer) -> usize {
    server
        .raw("ZCARD t:{cv}:rq")
        .trim_start_matches(':')
        .trim()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn what_is_staged_is_not_seen_and_goes() {
    let (store, engine, server) = open().await;
    let (id, change) = started();
    let put = put(&change);
    store.stage(id, put).await.unwrap();
    assert!(engine.show(id).await.is_err());
    assert_eq!(rows(&server), 0);
    let left = server.raw(&format!("PTTL t:{{cv}}:n:{id}:00000005"));
    let left: u64 = left.trim_start_matches(':').trim().parse().unwrap();
    assert!(left > 0 && left <= STAGED_TTL.as_millis() as u64, "{left}");
    // The creation continues after all.
    assert_eq!(
        store
            .apply(Partition(0), std::slice::from_ref(&change), None)
            .await,
        Ok(vec![Applied::Done])
    );
    assert_eq!(rows(&server), JOBS);
    assert_eq!(
        server.raw(&format!("PTTL t:{{cv}}:w:{id}")).trim(),
        ":-1",
        "the state itself stays"
    );
    assert_eq!(
        server
            .raw(&format!("EXISTS t:{{cv}}:n:{id}:00000005"))
            .trim(),
        ":0"
    );
    assert_eq!(
        server
            .raw(&format!("HEXISTS t:{{cv}}:w:{id} x00000005"))
            .trim(),
        ":0"
    );
    assert_eq!(
        engine
            .show(id)
            .await
            .unwrap()
            .meta()
            .counts
            .count_by_word("ready"),
        JOBS as u32
    );
    // The second creation finds the workflow.
    let again = store
        .apply(Partition(0), std::slice::from_ref(&change), None)
        .await
        .unwrap();
    assert_eq!(again, [Applied::MustReload]);
    assert_eq!(
        server.raw("KEYS t:{cv}:n:*").trim(),
        "*0",
        "what is refused leaves nothing"
    );
}

/// A server that dies or is stopped at any moment leaves nothing that stays.
#[tokio::test]
async fn what_is_staged_expires_from_its_first_piece_on() {
    let (store, _engine, server) = open().await;
    let (id, change) = started();
    let put = put(&change);
    let stage = || store.stage(id, put);
    let _ = server.raw("ACL SETUSER default -pexpire");
    assert!(stage().await.unwrap_err().to_string().contains("PEXPIRE"));
    assert_eq!(
        server.raw("KEYS t:{cv}:n:*").trim(),
        "*0",
        "nothing is written that would not expire"
    );
    let _ = server.raw("ACL SETUSER default +pexpire");
    // An expired staged state is not created again without its first fields.
    let key = store.keys.staged(id, 5);
    let later = [b"600000".as_slice(), b"0", b"1", b"x"].map(Arg::Bytes);
    let mut batch = Batch::new();
    let head = [
        Arg::Bytes(STAGE_SCRIPT.as_bytes()),
        Arg::Integer(1),
        Arg::Key(key.as_bytes()),
    ];
    batch
        .unit()
        .repeatable("EVAL", &head.into_iter().chain(later).collect::<Vec<_>>());
    assert!(check_staged(&store.send(batch).await[0]).is_err());
    assert_eq!(server.raw("KEYS t:{cv}:n:*").trim(), "*0");
}

/// The creator was frozen, another server wrote the rows, and the jobs were done. Then it resumed.
#[tokio::test]
async fn rows_that_come_too_late_are_not_written() {
    let (store, engine, server) = open().await;
    let (id, change) = started();
    let put = put(&change);
    let begin = async || {
        store.stage(id, put).await.unwrap();
        let written = store
            .write_unstaged(&change, put, &RowChange::default(), None)
            .await
            .unwrap();
        assert_eq!(written.applied, [Applied::Done]);
    };
    begin().await;
    engine.sweep(at(11)).await.unwrap();
    assert_eq!(rows(&server), JOBS);
    let _ = server.raw("DEL t:{cv}:rq");
    store
        .write_following_rows(&change, put, None)
        .await
        .unwrap();
    assert_eq!(rows(&server), 0, "another server has written the rows");
    engine.act(id, Action::Cancel, at(12)).await.unwrap();
    engine.act(id, Action::Delete, at(13)).await.unwrap();
    // The workflow is cancelled before all of its rows are written.
    begin().await;
    engine.act(id, Action::Cancel, at(12)).await.unwrap();
    store
        .write_following_rows(&change, put, None)
        .await
        .unwrap();
    assert_eq!(rows(&server), 0, "nothing is ready");
}

#[tokio::test]
async fn rows_that_did_not_follow_their_state_are_written_when_they_are_due() {
    let (store, engine, server) = open().await;
    let (id, change) = started();
    let put = put(&change);
    store.stage(id, put).await.unwrap();
    let some = RowChange {
        add: put.ready.add[..100].to_vec(),
        remove: Vec::new(),
    };
    assert_eq!(
        store
            .write_unstaged(&change, put, &some, None)
            .await
            .unwrap()
            .applied,
        [Applied::Done]
    );
    // A server that changes the workflow before that keeps the mark.
    let claim = Claim {
        queues: vec!["default".to_owned()],
        handlers: None,
        worker: "w".to_owned(),
        limit: 10,
        lease: Duration::from_secs(300),
    };
    assert_eq!(engine.claim(&claim, at(1)).await.unwrap().len(), 10);
    assert_eq!(rows(&server), 90);
    engine.sweep(at(11)).await.unwrap();
    assert_eq!(rows(&server), JOBS - 10);
    assert_eq!(
        server
            .raw(&format!("HEXISTS t:{{cv}}:w:{id} x00000005"))
            .trim(),
        ":0"
    );
    let mut known = 10;
    let many = Claim {
        limit: 1_000,
        ..claim
    };
    while known < JOBS {
        let claimed = engine.claim(&many, at(12)).await.unwrap().len();
        assert!(claimed > 0, "{known} of {JOBS} jobs were claimed");
        known += claimed;
    }
    assert_eq!(
        engine.show(id).await.unwrap().meta().status,
        Status::Running
    );
    assert_eq!(rows(&server), 0);
}
