//! The engine over the store in memory, where time is what a test says.

use std::time::Duration;

use super::actor::request::StartMode;
use super::claim::claimed::Claimed;
use super::claim::report::Report;
use super::list::query::Query;
use super::{Claim, NewWorkflow, WaitReason, *};
use crate::graph::{ConcurrencyScope, Definition, Graph, JobDefinition, LimitDefinition};
use crate::machine::Outcome;
use crate::model::{JobState, Json};
use crate::queue::{ClaimMode, Reach, RefillDepth, RefillTarget};
use crate::store::SimulatedStore;

const LEASE: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros((1_795_000_000 + seconds) * 1_000_000)
}

async fn engine() -> Engine {
    Engine::start(
        Store::Simulated(SimulatedStore::new(16)),
        EngineOptions::default(),
    )
    .await
    .unwrap()
}

/// Jobs as `name` or `name<parent,parent`.
fn graph(jobs: &str) -> Graph {
    let jobs = jobs.split(' ').map(|job| {
        let (name, after) = job.split_once('<').unwrap_or((job, ""));
        let after = after
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        JobDefinition {
            after,
            ..JobDefinition::new(name, "Handler")
        }
    });
    Graph::build(Definition {
        name: "test".to_owned(),
        jobs: jobs.collect(),
        ..Definition::default()
    })
    .unwrap()
}

async fn create(engine: &Engine, jobs: &str) -> WorkflowId {
    let new = NewWorkflow {
        graph: graph(jobs),
        start: StartMode::Now,
        created_at: None,
    };
    engine
        .create(vec![new], at(0))
        .await
        .pop()
        .unwrap()
        .unwrap()
        .workflow
}

fn claim(limit: usize) -> Claim {
    Claim {
        queues: vec!["default".to_owned()],
        handlers: None,
        worker: "w".to_owned(),
        limit,
        lease: LEASE,
    }
}

fn success(claimed: &Claimed) -> Report {
    let output = Json::parse(format!("\"{} ran\"", claimed.job().name)).unwrap();
    Report {
        lease: claimed.lease,
        outcome: Outcome::Succeeded {
            output: Some(output),
        },
    }
}

fn names(claimed: &[Claimed]) -> Vec<&str> {
    let mut names: Vec<&str> = claimed
        .iter()
        .map(|claimed| claimed.job().name.as_str())
        .collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_diamond_runs_in_order_and_outputs_reach_the_next() {
    let engine = engine().await;
    let id = create(&engine, "d<b,c b<a c<a a").await;
    let first = engine.claim(&claim(9), at(1)).await.unwrap();
    assert_eq!(names(&first), ["a"]);
    let (reported, second) = engine
        .report(vec![success(&first[0])], Some(&claim(9)), at(2))
        .await;
    assert_eq!(reported[0].as_ref().unwrap().job, JobState::Succeeded);
    let second = second.unwrap();
    assert_eq!(names(&second), ["b", "c"]);
    assert_eq!(&second[0].inputs[0].output[..], b"\"a ran\"");
    let (_, none) = engine
        .report(vec![success(&second[0])], Some(&claim(9)), at(3))
        .await;
    assert!(none.unwrap().is_empty());
    let (_, last) = engine
        .report(vec![success(&second[1])], Some(&claim(9)), at(4))
        .await;
    let last = last.unwrap();
    assert_eq!((names(&last), last[0].inputs.len()), (vec!["d"], 2));
    let (reported, _) = engine.report(vec![success(&last[0])], None, at(5)).await;
    assert_eq!(reported[0].as_ref().unwrap().workflow, Status::Succeeded);
    let (again, _) = engine.report(vec![success(&last[0])], None, at(6)).await;
    assert!(again[0].as_ref().unwrap().already);
    let snapshot = engine.show(id).await.unwrap();
    assert_eq!(snapshot.meta().finished_at, Some(at(5)));
    assert_eq!(
        snapshot.meta().expires_at,
        Some(at(5) + Duration::from_secs(7 * 86_400))
    );
    let page = engine
        .list(&Query {
            limit: 10,
            ..Query::default()
        })
        .await
        .unwrap();
    assert_eq!((page.items.len(), page.next), (1, None));
    assert!(engine.sweep(at(5 + 7 * 86_400)).await.is_ok());
    assert!(matches!(
        engine.show(id).await,
        Err(EngineError::NoWorkflow { .. })
    ));
}

#[tokio::test]
async fn a_lost_lease_brings_the_job_back_and_refuses_the_late_report() {
    let engine = engine().await;
    create(&engine, "a b<a").await;
    let late = engine.claim(&claim(9), at(1)).await.unwrap();
    assert!(engine.claim(&claim(9), at(2)).await.unwrap().is_empty());
    engine.sweep(at(32)).await.unwrap();
    let again = engine.claim(&claim(9), at(33)).await.unwrap();
    assert_eq!((names(&again), again[0].attempt), (vec!["a"], 1));
    let (refused, _) = engine.report(vec![success(&late[0])], None, at(34)).await;
    assert!(
        matches!(refused[0], Err(EngineError::Refused(_))),
        "{refused:?}"
    );
    let (taken, _) = engine.report(vec![success(&again[0])], None, at(35)).await;
    assert_eq!(taken[0].as_ref().unwrap().job, JobState::Succeeded);
}

#[tokio::test]
async fn a_failure_blocks_what_follows_until_it_is_retried() {
    let engine = engine().await;
    let id = create(&engine, "a b<a c").await;
    let claimed = engine.claim(&claim(9), at(1)).await.unwrap();
    let failed = |claimed: &Claimed| Report {
        lease: claimed.lease,
        outcome: Outcome::Failed {
            failure: crate::Failure::default(),
            retry: crate::RetryWish::ByPolicy,
        },
    };
    let reports = claimed
        .iter()
        .map(|claimed| match claimed.job().name.as_str() {
            "a" => failed(claimed),
            _ => success(claimed),
        });
    let (reported, _) = engine.report(reports.collect(), None, at(2)).await;
    assert!(reported.iter().all(Result::is_ok));
    let snapshot = engine.show(id).await.unwrap();
    assert_eq!(snapshot.meta().status, Status::Failed);
    let b = snapshot.graph().find("b").unwrap();
    assert_eq!(
        snapshot.why_not_running(b),
        Some(WaitReason::BlockedBy(vec![
            snapshot.graph().find("a").unwrap()
        ]))
    );
    assert_eq!(
        engine.act(id, Action::RetryFailed, at(3)).await,
        Ok(Status::Running)
    );
    let again = engine.claim(&claim(9), at(4)).await.unwrap();
    assert_eq!(names(&again), ["a"]);
    let (_, next) = engine
        .report(vec![success(&again[0])], Some(&claim(9)), at(5))
        .await;
    let (done, _) = engine
        .report(vec![success(&next.unwrap()[0])], None, at(6))
        .await;
    assert_eq!(done[0].as_ref().unwrap().workflow, Status::Succeeded);
}

/// All desks shared the thread of whoever asked first.
#[test]
fn desks_are_served_on_the_threads_of_their_partitions() {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use tokio::runtime::{Builder, Runtime};

    let [one, other] = [(), ()].map(|()| Builder::new_current_thread().build().unwrap());
    let store = Store::Simulated(SimulatedStore::new(4));
    let threads = [&one, &other]
        .map(|runtime| EngineThread::new(store.for_new_thread(), runtime.handle().clone()));
    let engine = one
        .block_on(Engine::start_on_threads(
            threads.into(),
            EngineOptions::default(),
        ))
        .unwrap();
    let tick = || Request::Tick {
        served_since: at(0),
    };
    let ask = |partition| {
        engine.request(
            WorkflowId::new(at(0), Partition(partition), 1),
            tick(),
            at(0),
        )
    };
    let check = |runtime: &Runtime, partition| {
        assert!(
            matches!(
                runtime.block_on(ask(partition)),
                Err(EngineError::NoWorkflow { .. })
            ),
            "{partition}"
        );
    };
    check(&one, 0);
    check(&one, 2);
    check(&other, 3);
    let mut waits = pin!(ask(1));
    // Its thread does nothing now, and no other does its work.
    let pending = one.block_on(async {
        let pending =
            poll_fn(|context| Poll::Ready(waits.as_mut().poll(context).is_pending())).await;
        tokio::task::yield_now().await;
        pending
    });
    assert!(pending);
    drop(other);
    assert!(
        matches!(one.block_on(waits), Err(EngineError::Closed)),
        "nobody waits for a thread that has ended"
    );
    assert!(matches!(one.block_on(ask(3)), Err(EngineError::Closed)));
    check(&one, 2);
}

/// Each partition had its part of the memory, and this workflow was read with each call.
#[tokio::test]
async fn a_workflow_may_take_most_of_the_memory() {
    let store = SimulatedStore::new(16);
    let options = EngineOptions {
        memory_bytes: 16 << 20,
        ..EngineOptions::default()
    };
    let engine = Engine::start(Store::Simulated(store.clone()), options)
        .await
        .unwrap();
    let jobs: Vec<String> = (0..5_000).map(|number| format!("job-{number}")).collect();
    create(&engine, &jobs.join(" ")).await;
    let mut claimed = engine.claim(&claim(1), at(1)).await.unwrap();
    for _ in 0..10 {
        let before = store.calls();
        let (reported, next) = engine
            .report(vec![success(&claimed[0])], Some(&claim(1)), at(1))
            .await;
        assert!(reported[0].is_ok());
        assert_eq!(
            store.calls() - before,
            2,
            "a write for the report and one for the claim"
        );
        claimed = next.unwrap();
    }
}

/// Of a queue with more jobs than are kept nobody ever believed that it was known, so each claim
/// that found too few read all of its lanes.
#[tokio::test]
async fn a_queue_with_more_jobs_than_are_kept_is_known_when_it_was_read() {
    let engine = engine().await;
    for tenant in 0..20 {
        let entries = vec![("tenant".to_owned(), format!("t{tenant}"))];
        let limits = vec![LimitDefinition::Concurrency {
            most: 1,
            of: ConcurrencyScope::All,
            entries,
        }];
        let job = |at| JobDefinition {
            limits: limits.clone(),
            ..JobDefinition::new(format!("j{at}"), "Handler")
        };
        let jobs = (0..1_000).map(job).collect();
        let graph = Graph::build(Definition {
            name: "test".to_owned(),
            jobs,
            ..Definition::default()
        })
        .unwrap();
        let new = NewWorkflow {
            graph,
            start: StartMode::Now,
            created_at: None,
        };
        engine.create(vec![new], at(0)).await.remove(0).unwrap();
    }
    let names = ["default".to_owned()];
    engine.queues().advance(at(1));
    engine.queues().mark_all_incomplete();
    assert!(
        !engine
            .queues()
            .incomplete(&names, Reach::Others, ClaimMode::Immediate)
            .is_empty()
    );
    let all: Vec<Partition> = engine.store().all_partitions().collect();
    engine
        .refill(
            &RefillTarget::whole_queues(&names),
            &all,
            512,
            RefillDepth::All,
        )
        .await
        .unwrap();
    assert!(
        engine
            .queues()
            .incomplete(&names, Reach::Others, ClaimMode::Immediate)
            .is_empty()
    );
}

/// Each worker that waited read all lanes of a queue itself, while jobs arrived for it.
#[tokio::test]
async fn who_waits_leaves_most_of_a_queue_to_a_read_beside_its_claim() {
    let store = SimulatedStore::new(16);
    let server = || Engine::start(Store::Simulated(store.clone()), EngineOptions::default());
    let job = |at: usize| JobDefinition::new(format!("j{at}"), format!("handler-{:02}", at / 100));
    let definition = Definition {
        name: "test".to_owned(),
        jobs: (0..2_000).map(job).collect(),
        ..Definition::default()
    };
    let new = NewWorkflow {
        graph: Graph::build(definition).unwrap(),
        start: StartMode::Now,
        created_at: None,
    };
    server()
        .await
        .unwrap()
        .create(vec![new], at(0))
        .await
        .remove(0)
        .unwrap();
    let last = Claim {
        handlers: Some(vec!["handler-19".to_owned()]),
        ..claim(1)
    };
    let engine = server().await.unwrap();
    assert_eq!(
        engine.claim(&last, at(1)).await.unwrap().len(),
        1,
        "who does not wait reads all"
    );
    let engine = server().await.unwrap();
    let arrival = engine.arrival_except(&last.queues, last.handlers.as_deref(), &[]);
    assert!(
        engine
            .lease_except(&last, &[], ClaimMode::LongPoll, at(1))
            .await
            .unwrap()
            .is_empty()
    );
    tokio::time::timeout(Duration::from_secs(10), arrival)
        .await
        .expect("it is called when the job was found");
    let leases = engine
        .lease_except(&last, &[], ClaimMode::LongPoll, at(1))
        .await
        .unwrap();
    assert_eq!(engine.deliver(leases).await.unwrap().len(), 1);
    assert!(
        engine
            .queues()
            .incomplete(&last.queues, Reach::Others, ClaimMode::Immediate)
            .is_empty()
    );
}

/// All limits were tried again whenever a server began to listen, however many had no room.
#[tokio::test]
async fn news_that_were_missed_open_sets_alone() {
    let engine = engine().await;
    let (rate, set): (Arc<str>, Arc<str>) = (
        "vendor\ntenant\ta\n\u{0}1".into(),
        "[\"all\",\"a\"]\u{0}1".into(),
    );
    let queues = engine.queues();
    let closing = || crate::queue::LimitBlock {
        until: at(100),
        capacity: None,
        window_ends_at: None,
    };
    let lane = |limit: &Arc<str>| {
        (
            Arc::from("default"),
            crate::queue::LaneKey {
                limits: Arc::clone(limit),
                handler: "h".into(),
            },
        )
    };
    for limit in [&rate, &set] {
        let (queue, lane) = lane(limit);
        queues.block((&queue, &lane), limit, closing(), queues.return_count());
    }
    let asked = queues.return_count();
    queues.unblock_concurrency_limits();
    assert_eq!(
        queues.next_unblock(),
        Some(at(100)),
        "the rate limit is closed as before"
    );
    queues.unblock("vendor\ntenant\ta\n");
    assert_eq!(queues.next_unblock(), None);
    let (queue, lane) = lane(&set);
    queues.block((&queue, &lane), &set, closing(), asked);
    assert_eq!(
        queues.next_unblock(),
        None,
        "an answer from before the news closes nothing"
    );
}

/// Who was woken to read the rest of a queue left, and the others waited until the next read.
#[tokio::test]
async fn who_is_woken_to_read_a_queue_and_leaves_wakes_another() {
    let engine = engine().await;
    let names = ["default".to_owned()];
    let first = engine.arrival(&names);
    let second = engine.arrival(&names);
    engine
        .queues()
        .end_background_refill(&RefillTarget::whole_queues(&names));
    drop(first);
    tokio::time::timeout(Duration::from_secs(10), second)
        .await
        .expect("it is woken in place of the first");
}
