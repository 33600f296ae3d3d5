//! Many workers that wait, and workers that wait for many queues.

use std::time::Duration;

use tidegate_workflow::{Action, Engine, LeaseRef, StartMode};
use tokio::time::timeout;

use super::orphans::commands;
use super::{give_back, queues, woken};
use crate::support::{at, claim, create, create_of, definition, redis, server, simulated, take};

/// How many ranges of ready rows a look reads.
async fn ranges(redis: &tidegate_pipeline::test_util::RedisServer, engine: &Engine) -> usize {
    let sent = commands(redis, async { _ = engine.poll_store().await.unwrap() }).await;
    sent.iter()
        .filter(|sent| sent.contains("\"ZRANGE\"") && sent.contains(":rq\""))
        .count()
}

/// Every name that a worker waited for was read in all partitions, many times a second, although no job had ever named it.
#[tokio::test]
async fn queues_that_no_job_names_cost_a_look_nothing() {
    let (store, redis) = redis().await;
    let engine = server(&store).await;
    let other = server(&store).await;
    let unknown: Vec<String> = (0..100).map(|at| format!("unknown{at}")).collect();
    let waits = engine.arrival(&unknown);
    assert_eq!(ranges(&redis, &engine).await, 0);
    let mut wanted = definition("a");
    wanted.jobs[0].queue = unknown[7].clone();
    create_of(&other, wanted, StartMode::Now).await;
    assert_eq!(ranges(&redis, &engine).await, 4, "one in each partition");
    assert!(woken(waits).await, "it has a job by now");
}

/// However many queues workers wait for, a look is small, and nobody is forgotten.
#[tokio::test]
async fn queues_take_turns_to_be_looked_at() {
    let (store, redis) = redis().await;
    let engine = server(&store).await;
    let other = server(&store).await;
    let all: Vec<String> = (0..300).map(|at| format!("q{at:03}")).collect();
    let mut wanted = definition(&all.join(" "));
    wanted
        .jobs
        .iter_mut()
        .zip(&all)
        .for_each(|(job, queue)| job.queue.clone_from(queue));
    let id = create_of(&other, wanted, StartMode::Later).await;
    let waits: Vec<_> = all.chunks(1).map(|queue| engine.arrival(queue)).collect();
    for _ in 0..4 {
        let read = ranges(&redis, &engine).await;
        assert!((1..=512).contains(&read), "{read} ranges");
    }
    other.act(id, Action::Start, at(1)).await.unwrap();
    for _ in 0..3 {
        engine.poll_store().await.unwrap();
    }
    for arrival in waits {
        assert!(woken(arrival).await);
    }
}

/// Each of them was compared with each job that it had given back, for each of these jobs, and all others waited meanwhile.
#[tokio::test]
async fn workers_that_gave_many_jobs_back_hold_nobody_up() {
    const JOBS: usize = 500;
    let (store, ()) = simulated().await;
    let engine = server(&store).await;
    let jobs: Vec<String> = (0..JOBS).map(|job| format!("j{job}")).collect();
    create(&engine, &jobs.join(" "), StartMode::Now).await;
    let claimed = take(&engine, 1).await;
    let leases: Vec<LeaseRef> = claimed.iter().map(|claimed| claimed.lease).collect();
    let queues = queues();
    let mut waiting: Vec<_> = (0..100)
        .map(|_| engine.arrival_except(&queues, None, &leases))
        .collect();
    let crowd = async {
        let (reported, _) = engine
            .report(claimed.iter().map(give_back).collect(), None, at(2))
            .await;
        assert!(reported.iter().all(Result::is_ok));
        for _ in 0..100 {
            engine.poll_store().await.unwrap();
            assert!(
                engine
                    .claim_except(&claim(JOBS), &leases, at(2))
                    .await
                    .unwrap()
                    .is_empty()
            );
        }
    };
    // It takes a second at most; it took minutes.
    timeout(Duration::from_secs(20), crowd).await.unwrap();
    create(&engine, "new", StartMode::Now).await;
    assert!(woken(waiting.remove(0)).await, "one may have the new job");
}
