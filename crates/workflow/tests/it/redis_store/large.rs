//! Workflows with many jobs.

use tidegate_pipeline::test_util::RedisServer;
use tidegate_workflow::{Begin, Definition, JobDefinition, LeaseRef, Report, Status};

use crate::support::{at, claim, create_of, redis, server, success};

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
