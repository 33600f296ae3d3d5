//! What is in Redis, what it costs, and how often Redis is asked.

use std::time::Duration;

use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_workflow::change::{Delete, Put, ResultField, TimerMove};
use tidegate_workflow::rows::Section;
use tidegate_workflow::{
    Claim, Definition, Engine, EngineOptions, Graph, JobDefinition, JobIndex, JobNote, Json,
    NewWorkflow, NoteOutcome, Order, Outcome, Partition, RedisOptions, Report, RowRange, StartMode,
    Store, TimeIndex, WorkflowId,
};

use super::{open, open_with, open_with_client, options};
use crate::contract::rows::added;
use crate::contract::{
    PARTITIONS, birth, count_all, create, delete, depth_of_all, done, due_of_each, heads_of, id,
    index_row, micros, ready_of_each, ready_row, update,
};

/// The keys on a server, sorted.
fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys = texts(server, "KEYS *");
    keys.sort();
    keys
}

/// The texts in the answers to commands.
fn texts(server: &RedisServer, commands: &str) -> Vec<String> {
    let reply = server.raw(commands);
    let lines = reply.lines().filter(|line| !line.starts_with(['*', '$']));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_workflow_has_few_keys_and_they_go_with_it() {
    let (store, server) = open().await;
    let id = id(7, 1);
    let row = index_row(Section::All, id);
    let put = Put {
        creation: Some(birth(Some("order 1"))),
        jobs: vec![(JobIndex(12), b"state".to_vec())],
        index: added(vec![row.clone()]),
        ready: added(vec![ready_row("default", 1, id, 12)]),
        timer: TimerMove::To(micros(1)),
        expiry: TimerMove::To(micros(2)),
        ..Put::default()
    };
    done(&store, create(id, put)).await;
    let results = vec![(ResultField::Output(JobIndex(12)), b"1".to_vec())];
    let before = keys(&server);
    let put = Put {
        results,
        ..Put::default()
    };
    done(&store, update(id, "first", "second", put)).await;
    let tagged = before.iter().find(|key| key.contains('{')).unwrap();
    let tag = tagged.split(['{', '}']).nth(1).unwrap();
    let parts = ["w", "d"].map(|part| format!("{part}:{id}"));
    let rest = ["rq", "ix", "tm", "ex", "k:order 1", &parts[0], &parts[1]];
    let mut expected: Vec<String> = rest
        .iter()
        .map(|rest| format!("tg:{{{tag}}}:{rest}"))
        .collect();
    expected.push("tg:meta".to_owned());
    expected.sort();
    assert_eq!(before, expected);
    let results = format!("tg:{{{tag}}}:o:{id}");
    assert!(
        keys(&server).contains(&results),
        "results come with the first one"
    );
    let fields =
        format!("HKEYS tg:{{{tag}}}:w:{id}\r\nHKEYS {results}\r\nGET \"tg:{{{tag}}}:k:order 1\"");
    assert_eq!(
        texts(&server, &fields),
        ["m", "12", "l", "12", &id.to_string()]
    );

    let ready = vec![ready_row("default", 1, id, 12)];
    let all = Delete {
        ready,
        index: vec![row],
        idempotency_key: Some("order 1".to_owned()),
    };
    done(&store, delete(id, "second", all)).await;
    let timers = format!("tg:{{{tag}}}:tm");
    assert_eq!(keys(&server), ["tg:meta", &timers]);
    // A row of it makes Redis keep the set in a form that is not searched row by row. No read finds it.
    assert_eq!(server.raw(&format!("ZCARD {timers}")).trim(), ":1");
    assert_eq!(server.raw(&format!("ZCOUNT {timers} 0 +inf")).trim(), ":0");
    let encoding = texts(&server, &format!("OBJECT ENCODING {timers}"));
    assert_eq!(encoding, ["skiplist"]);
}

fn note_of(workflow: WorkflowId) -> JobNote {
    JobNote {
        workflow,
        job: JobIndex(3),
        attempt: 1,
        at: micros(1),
        progress: Some((7, "x".to_owned())),
        lines: vec![],
    }
}

#[tokio::test]
async fn notes_are_beside_results_and_need_no_key_of_their_own() {
    let (store, server) = open().await;
    let id = id(7, 1);
    done(&store, create(id, Put::default())).await;
    let before = keys(&server);
    assert_eq!(
        store.add_notes(&[note_of(id)]).await,
        [Ok(NoteOutcome::Stored)]
    );
    for _ in 0..40 {
        let lines = vec!["x".repeat(3_000)];
        assert_eq!(
            store
                .add_notes(&[JobNote {
                    lines,
                    ..note_of(id)
                }])
                .await,
            [Ok(NoteOutcome::Stored)]
        );
    }
    let added: Vec<String> = keys(&server)
        .into_iter()
        .filter(|key| !before.contains(key))
        .collect();
    let [results] = &added[..] else {
        panic!("{added:?}")
    };
    assert!(results.ends_with(&format!(":o:{id}")), "{results}");
    let mut fields = texts(&server, &format!("HKEYS {results}"));
    fields.sort_unstable();
    // Pieces of two lines, of 20 the last ten.
    let pieces = (10..20).map(|slot| format!("3.l{slot}"));
    let expected: Vec<String> = ["3.l".to_owned()]
        .into_iter()
        .chain(pieces)
        .chain(["3.p".to_owned()])
        .collect();
    assert_eq!(fields, expected);
}

/// How often a client wrote to a socket while something ran.
async fn writes<T>(client: &Client, what: impl Future<Output = T>) -> u64 {
    let before = client.stats().writes;
    what.await;
    client.stats().writes - before
}

/// Every write costs one write for each of `nodes` that it concerns.
async fn check_writes(store: &Store, client: &Client, nodes: u64, ids: &[WorkflowId]) {
    for partition in (0..PARTITIONS).map(Partition) {
        let here = ids.iter().filter(|id| id.partition() == partition);
        let change = |&id| {
            let put = Put {
                timer: TimerMove::To(micros(1)),
                ..Put::default()
            };
            create(id, put)
        };
        let changes: Vec<_> = here.map(change).collect();
        let number = writes(client, store.apply(partition, &changes)).await;
        assert_eq!(number, 1, "apply {}", changes.len());
    }
    let note = |&workflow| JobNote {
        workflow,
        lines: vec!["line".to_owned()],
        ..note_of(workflow)
    };
    let notes: Vec<JobNote> = ids.iter().map(note).collect();
    assert_eq!(
        writes(client, store.add_notes(&notes)).await,
        nodes,
        "notes"
    );
}

/// Every read costs one write for each of `nodes` that it concerns.
async fn check_reads(store: &Store, client: &Client, nodes: u64, ids: &[WorkflowId]) {
    let results: Vec<_> = ids
        .iter()
        .map(|&id| (id, vec![ResultField::Output(JobIndex(0))]))
        .collect();
    let span = || RowRange::section(Section::All.prefix());
    let spans: Vec<_> = (0..PARTITIONS).map(|at| (Partition(at), span())).collect();
    let count = [span(), RowRange::section(b"s".to_vec())];
    let prefixes = [b"a".to_vec(), b"b".to_vec()];
    let page = store.page(&spans, Order::NewestFirst, 100);
    let due = due_of_each(store, TimeIndex::Timers, 5, 100);
    let numbers = [
        writes(client, store.load(ids)).await,
        writes(client, store.summaries(ids)).await,
        writes(client, store.results(&results)).await,
        writes(client, ready_of_each(store, &prefixes, 100)).await,
        writes(client, due).await,
        writes(client, page).await,
        writes(client, count_all(store, &count)).await,
        writes(client, depth_of_all(store, &prefixes)).await,
    ];
    assert_eq!(numbers, [nodes; 8]);
    let keyed = writes(client, store.workflow_by_key(Partition(0), "key")).await;
    assert_eq!(keyed, 1, "keyed");
}

async fn check_round_trips(store: &Store, client: &Client, nodes: u64) {
    let ids: Vec<_> = (0..64)
        .map(|at| id(at + 1, (at % u64::from(PARTITIONS)) as u16))
        .collect();
    check_writes(store, client, nodes, &ids).await;
    check_reads(store, client, nodes, &ids).await;
    let loaded = store.load(&ids).await.unwrap();
    assert_eq!(loaded.iter().flatten().count(), ids.len());
}

#[tokio::test]
async fn every_call_is_one_round_trip() {
    let (store, _server, client) = open_with_client().await;
    check_round_trips(&store, &client, 1).await;
}

#[tokio::test]
async fn every_call_is_one_round_trip_for_each_node_of_a_cluster() {
    let cluster = RedisCluster::start(3, 0).await;
    let client = Client::new(cluster.config()).unwrap();
    let store = open_with(&client, options("tg:")).await;
    check_round_trips(&store, &client, 3).await;
}

#[tokio::test]
async fn changes_that_are_too_many_for_one_call_go_out_together() {
    let (store, server, client) = open_with_client().await;
    let job = |at| (JobIndex(at), vec![7; 100]);
    let change = |at| {
        create(
            id(at, 0),
            Put {
                jobs: (0..1_000).map(job).collect(),
                ..Put::default()
            },
        )
    };
    let changes: Vec<_> = (1..=8).map(change).collect();
    let monitor = server.monitor();
    let round_trips = writes(&client, store.apply(Partition(0), &changes)).await;
    let _ = server.raw("ECHO end");
    let commands = monitor.commands_until("end");
    let calls = commands
        .iter()
        .filter(|command| command.starts_with("\"EVALSHA\""))
        .count();
    // Each change has 2,000 arguments and more, and a call takes no more changes after 4,000.
    assert_eq!(calls, 4);
    // A write takes at most what a connection may have in flight; none of them waits for an answer.
    assert!(round_trips <= 2, "{round_trips} writes");
}

#[tokio::test]
async fn a_state_stays_compact_with_a_long_label() {
    let (store, server) = open().await;
    for (at, length) in [(1, 64), (2, 65), (3, 256)] {
        let mut birth = birth(None);
        birth.label = vec![b'x'; length];
        let put = Put {
            creation: Some(birth),
            jobs: vec![(JobIndex(0), vec![0; 64])],
            ..Put::default()
        };
        done(&store, create(id(at, 0), put)).await;
        let key = keys(&server)
            .into_iter()
            .find(|key| key.ends_with(&format!(":w:{}", id(at, 0))))
            .unwrap();
        assert!(
            server
                .raw(&format!("OBJECT ENCODING {key}"))
                .contains("listpack"),
            "{length}"
        );
        let heads = heads_of(&store, &[id(at, 0)]).await.unwrap();
        assert_eq!(heads[0].as_ref().unwrap().label, vec![b'x'; length]);
    }
}

/// Runs workflows of two jobs to their end.
async fn finish(store: Store, workflows: usize) {
    let job = |name: &str, after: &[&str]| JobDefinition {
        after: after.iter().map(|&name| name.to_owned()).collect(),
        params: Some(Json::parse(r#"{"order":123456}"#).unwrap()),
        ..JobDefinition::new(name, "orders.handle")
    };
    let jobs = vec![job("fetch", &[]), job("store", &["fetch"])];
    let definition = Definition {
        name: "order-fulfilment".to_owned(),
        jobs,
        ..Definition::default()
    };
    let graph = Graph::build(definition).unwrap();
    let engine = Engine::start(store, EngineOptions::default())
        .await
        .unwrap();
    let now = micros(1_795_000_000_123_456);
    let new = NewWorkflow {
        graph,
        start: StartMode::Now,
        created_at: None,
    };
    let created = engine.create(vec![new; workflows], now).await;
    assert!(created.iter().all(Result::is_ok));
    let queues = vec!["default".to_owned()];
    let claim = Claim {
        queues,
        handlers: None,
        worker: "worker-host-7".to_owned(),
        limit: workflows,
        lease: Duration::from_secs(30),
    };
    let mut claimed = engine.claim(&claim, now).await.unwrap();
    let mut jobs = 0;
    while !claimed.is_empty() {
        jobs += claimed.len();
        let output = Some(Json::parse(r#"{"ok":true,"items":3}"#).unwrap());
        let outcome = Outcome::Succeeded { output };
        let reports = claimed
            .iter()
            .map(|job| Report {
                lease: job.lease,
                outcome: outcome.clone(),
            })
            .collect();
        claimed = engine
            .report(reports, Some(&claim), now + Duration::from_millis(1_234))
            .await
            .1
            .unwrap();
    }
    assert_eq!(jobs, 2 * workflows);
    engine.close().await;
}

#[tokio::test]
async fn a_finished_workflow_of_two_jobs_costs_at_most_1500_bytes() {
    const WORKFLOWS: usize = 2_000;
    let (store, server) = open().await;
    finish(store, WORKFLOWS).await;
    let usage: Vec<String> = keys(&server)
        .iter()
        .map(|key| format!("MEMORY USAGE {key} SAMPLES 0"))
        .collect();
    let usage = server.raw(&usage.join("\r\n"));
    let bytes: usize = usage
        .lines()
        .map(|bytes| bytes[1..].parse::<usize>().unwrap())
        .sum();
    let each = bytes / WORKFLOWS;
    assert!(each <= 1_500, "{each} bytes");
    // Below that, something was not written, or not counted.
    assert!(each >= 700, "{each} bytes");
}

#[tokio::test]
async fn stores_of_one_redis_do_not_meet() {
    let (store, _server, client) = open_with_client().await;
    let other = open_with(
        &client,
        RedisOptions::new("other:", 1, Duration::from_secs(5)).unwrap(),
    )
    .await;
    let put = Put {
        timer: TimerMove::To(micros(1)),
        ..Put::default()
    };
    done(&store, create(id(1, 0), put)).await;
    assert_eq!(other.load(&[id(1, 0)]).await.unwrap(), [None]);
    assert_eq!(
        due_of_each(&other, TimeIndex::Timers, 9, 9).await.unwrap(),
        []
    );
    assert_eq!((store.partitions(), other.partitions()), (PARTITIONS, 1));
}
