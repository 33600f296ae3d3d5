//! Workflows with many jobs.

use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::{
    Definition, Engine, Graph, JobDefinition, JobIndex, LeaseRef, Report, StartMode, Status,
};

use crate::support::{at, claim, create_of, redis, server, succeed, success};

fn wide(jobs: usize) -> Definition {
    let jobs = (0..jobs).map(|at| JobDefinition::new(format!("j{at}"), "handler"));
    Definition {
        name: "wide".to_owned(),
        jobs: jobs.collect(),
        ..Definition::default()
    }
}

/// How many bytes Redis has sent.
fn sent(redis: &RedisServer) -> u64 {
    let info = redis.raw("INFO stats");
    let bytes = info
        .lines()
        .find_map(|line| line.strip_prefix("total_net_output_bytes:"))
        .unwrap();
    bytes.trim().parse().unwrap()
}

#[tokio::test]
async fn servers_that_write_one_large_workflow_in_turn_read_what_the_other_has_changed() {
    const JOBS: usize = 3_000;
    const AT_ONCE: usize = 20;
    let (store, redis) = redis().await;
    let servers = [server(&store).await, server(&store).await];
    let id = create_of(&servers[0], wide(JOBS), StartMode::Now).await;
    let claimed = servers[0].claim(&claim(JOBS), at(1)).await.unwrap();
    let leases: Vec<LeaseRef> = claimed.iter().map(|claimed| claimed.lease).collect();
    assert_eq!(leases.len(), JOBS);
    let mut before = 0;
    let mut turns = 0;
    for (turn, (some, server)) in leases
        .chunks(AT_ONCE)
        .zip(servers.iter().cycle())
        .enumerate()
    {
        if turn == servers.len() {
            // Now both know the workflow.
            before = sent(&redis);
        }
        let reports = some
            .iter()
            .map(|&lease| Report {
                lease,
                outcome: success("1"),
            })
            .collect();
        let (reported, _) = server.report(reports, None, at(2)).await;
        assert!(reported.iter().all(Result::is_ok), "{reported:?}");
        turns = turn as u64;
    }
    let for_each_turn = (sent(&redis) - before) / turns;
    assert!(
        for_each_turn < 100 * AT_ONCE as u64,
        "{for_each_turn} bytes for {AT_ONCE} of {JOBS} jobs"
    );
    assert_eq!(
        servers[0].show(id).await.unwrap().meta().status,
        Status::Succeeded
    );
}

#[tokio::test]
async fn what_is_shown_of_a_large_workflow_is_what_is_read_of_it() {
    const JOBS: usize = 3_000;
    let (store, redis) = redis().await;
    let one = server(&store).await;
    let other = server(&store).await;
    let id = create_of(&one, wide(JOBS), StartMode::Now).await;
    let all = other.show(id).await.unwrap();
    let page = |graph: &Graph| {
        (0..graph.jobs.len() as u32)
            .map(JobIndex)
            .skip(100)
            .take(10)
            .collect()
    };
    let before = sent(&redis);
    let outline = other.workflow_summary(id).await.unwrap();
    assert_eq!(
        (outline.listed.meta.counts.total(), outline.blocked),
        (JOBS, 0)
    );
    let summary = sent(&redis) - before;
    let some = one.show_jobs(id, page).await.unwrap();
    let page = sent(&redis) - before - summary;
    assert_eq!(some.job(JobIndex(105)), all.job(JobIndex(105)));
    assert_eq!(
        some.why_not_running(JobIndex(105)),
        one.show(id).await.unwrap().why_not_running(JobIndex(105))
    );
    assert!(
        summary < 6_000 && page < 6_000,
        "{summary} and {page} bytes, with a question for the bytes each"
    );
}

/// How often Redis was asked for a hash as a whole.
fn whole_reads(redis: &RedisServer) -> u64 {
    let info = redis.raw("INFO commandstats");
    let calls = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_hgetall:calls="));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

/// One command that reads a large state keeps Redis from all others for long.
#[tokio::test]
async fn a_large_state_is_read_in_pieces_and_is_of_one_moment() {
    const JOBS: usize = 9_000;
    let (store, redis) = redis().await;
    let one = server(&store).await;
    let other = server(&store).await;
    let id = create_of(&one, wide(JOBS), StartMode::Now).await;
    let before = whole_reads(&redis);
    let worker = async {
        let mut jobs = 0;
        while jobs < JOBS {
            let claimed = one.claim(&claim(100), at(1)).await.unwrap();
            let reports = claimed.iter().map(|claimed| Report {
                lease: claimed.lease,
                outcome: success("1"),
            });
            let (reported, _) = one.report(reports.collect(), None, at(2)).await;
            jobs += reported.iter().filter(|reported| reported.is_ok()).count();
        }
    };
    let reader = async {
        loop {
            let shown = other.show(id).await.unwrap();
            let states = shown.states();
            for (word, number) in shown.meta().counts.entries() {
                assert_eq!(
                    states.iter().filter(|state| state.word() == word).count(),
                    number as usize,
                    "{word}"
                );
            }
            if shown.meta().status == Status::Succeeded {
                return;
            }
        }
    };
    tokio::join!(worker, reader);
    assert_eq!(whole_reads(&redis), before);
}

#[tokio::test]
async fn a_server_that_knows_a_large_state_of_long_ago_reads_it_in_pieces() {
    const JOBS: usize = 9_000;
    let (store, redis) = redis().await;
    let one = server(&store).await;
    let other = server(&store).await;
    let id = create_of(&one, wide(JOBS), StartMode::Now).await;
    let old = other.claim(&claim(10), at(1)).await.unwrap();
    let before = whole_reads(&redis);
    // More writes than the trail has, and then fewer.
    for (writes, jobs) in [(70, 10), (20, 200)] {
        for _ in 0..writes {
            assert_eq!(one.claim(&claim(jobs), at(1)).await.unwrap().len(), jobs);
        }
        assert!(succeed(&other, old[writes / 10].lease, 2).await.is_ok());
        // Its own state says that this one is not ready any more, which may be wrong.
        assert!(succeed(&other, old[writes / 10].lease, 2).await.is_ok());
    }
    assert_eq!(other.claim(&claim(100), at(3)).await.unwrap().len(), 100);
    assert_eq!(whole_reads(&redis), before);
    assert_eq!(
        other
            .show(id)
            .await
            .unwrap()
            .meta()
            .counts
            .count_by_word("running"),
        10 + 700 + 4_000 + 100 - 2
    );
}

/// A server that is behind when it writes was refused again and again, and gave up after some times.
#[tokio::test]
async fn servers_that_write_one_large_workflow_at_the_same_time_are_all_served() {
    const JOBS: usize = 9_000;
    let (store, redis) = redis().await;
    let servers = [
        server(&store).await,
        server(&store).await,
        server(&store).await,
    ];
    let id = create_of(&servers[0], wide(JOBS), StartMode::Now).await;
    let before = whole_reads(&redis);
    let work = async |server: &Engine| {
        loop {
            let claimed = server.claim(&claim(300), at(1)).await.unwrap();
            if claimed.is_empty() {
                return;
            }
            let reports = claimed.iter().map(|claimed| Report {
                lease: claimed.lease,
                outcome: success("1"),
            });
            let (reported, _) = server.report(reports.collect(), None, at(2)).await;
            assert!(
                reported.iter().all(Result::is_ok),
                "{:?}",
                reported.iter().find(|reported| reported.is_err())
            );
        }
    };
    tokio::join!(work(&servers[0]), work(&servers[1]), work(&servers[2]));
    assert_eq!(
        servers[0]
            .show(id)
            .await
            .unwrap()
            .meta()
            .counts
            .count_by_word("succeeded"),
        JOBS as u32
    );
    assert_eq!(whole_reads(&redis), before);
}

/// Each page of a workflow that nobody works on here read and decoded its whole graph.
#[tokio::test]
async fn a_graph_that_was_looked_at_is_remembered() {
    let (store, redis) = redis().await;
    let one = server(&store).await;
    let other = server(&store).await;
    let id = create_of(&one, wide(3_000), StartMode::Now).await;
    let page = |graph: &Graph| {
        (0..graph.jobs.len() as u32)
            .map(JobIndex)
            .take(10)
            .collect()
    };
    other.show_jobs(id, page).await.unwrap();
    let before = sent(&redis);
    let some = other.show_jobs(id, page).await.unwrap();
    assert!(sent(&redis) - before < 6_000);
    // Whoever works on it then finds its state beside the graph.
    let claimed = other.claim(&claim(1), at(1)).await.unwrap();
    assert_eq!(some.job(JobIndex(0)).state.word(), "ready");
    assert_eq!(
        other
            .show_jobs(id, page)
            .await
            .unwrap()
            .job(claimed[0].lease.job)
            .state
            .word(),
        "running"
    );
}
