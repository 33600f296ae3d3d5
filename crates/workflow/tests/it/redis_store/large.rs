//! Workflows with many jobs.

use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::{
    Begin, Definition, EngineError, Format, Graph, JobDefinition, JobIndex, LeaseRef, MemoryStore, Report, Status,
    Store,
};

use crate::support::{at, claim, create_of, new, redis, server, success};

fn wide(jobs: usize) -> Definition {
    let jobs = (0..jobs).map(|at| JobDefinition::new(format!("j{at}"), "handler"));
    Definition { name: "wide".to_owned(), jobs: jobs.collect(), ..Definition::default() }
}

/// How many bytes Redis has sent.
fn sent(redis: &RedisServer) -> u64 {
    let info = redis.raw("INFO stats");
    let bytes = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:")).unwrap();
    bytes.trim().parse().unwrap()
}

#[tokio::test]
async fn servers_that_write_one_large_workflow_in_turn_read_what_the_other_has_changed() {
    const JOBS: usize = 3_000;
    const AT_ONCE: usize = 20;
    let (store, redis) = redis().await;
    let servers = [server(&store).await, server(&store).await];
    let id = create_of(&servers[0], wide(JOBS), Begin::Now).await;
    let claimed = servers[0].claim(&claim(JOBS), at(1)).await.unwrap();
    let leases: Vec<LeaseRef> = claimed.iter().map(|claimed| claimed.lease).collect();
    assert_eq!(leases.len(), JOBS);
    let (mut before, mut turns) = (0, 0);
    for (turn, (some, server)) in leases.chunks(AT_ONCE).zip(servers.iter().cycle()).enumerate() {
        if turn == servers.len() {
            // Now both know the workflow.
            before = sent(&redis);
        }
        let reports = some.iter().map(|&lease| Report { lease, outcome: success("1") }).collect();
        let (reported, _) = server.report(reports, None, at(2)).await;
        assert!(reported.iter().all(Result::is_ok), "{reported:?}");
        turns = turn as u64;
    }
    let for_each_turn = (sent(&redis) - before) / turns;
    assert!(for_each_turn < 100 * AT_ONCE as u64, "{for_each_turn} bytes for {AT_ONCE} of {JOBS} jobs");
    assert_eq!(servers[0].show(id).await.unwrap().meta().status, Status::Succeeded);
}

#[tokio::test]
async fn what_is_shown_of_a_large_workflow_is_what_is_read_of_it() {
    const JOBS: usize = 3_000;
    let (store, redis) = redis().await;
    let (one, other) = (server(&store).await, server(&store).await);
    let id = create_of(&one, wide(JOBS), Begin::Now).await;
    let all = other.show(id).await.unwrap();
    let page = |graph: &Graph| (0..graph.jobs.len() as u32).map(JobIndex).skip(100).take(10).collect();
    let before = sent(&redis);
    let outline = other.outline(id).await.unwrap();
    assert_eq!((outline.listed.meta.counts.total(), outline.blocked), (JOBS, 0));
    let summary = sent(&redis) - before;
    let some = one.show_some(id, page).await.unwrap();
    let page = sent(&redis) - before - summary;
    assert_eq!(some.job(JobIndex(105)), all.job(JobIndex(105)));
    assert_eq!(some.why_not_running(JobIndex(105)), one.show(id).await.unwrap().why_not_running(JobIndex(105)));
    assert!(summary < 6_000 && page < 6_000, "{summary} and {page} bytes, with a question for the bytes each");
}

#[tokio::test]
async fn a_store_of_the_first_format_has_no_more_jobs_than_its_rows_can_name() {
    let store = Store::Memory(MemoryStore::new(1).in_format(Format::First));
    let engine = server(&store).await;
    let created = engine.create([65_536, 65_537, 1].map(|jobs| new(wide(jobs), Begin::Now)).into(), at(0)).await;
    let refused = EngineError::TooManyJobs { jobs: 65_537, most: 65_536 };
    assert!(created[0].is_ok() && created[2].is_ok() && created[1] == Err(refused), "{created:?}");
}
