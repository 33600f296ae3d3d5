//! One fault after the other, at random, for as long as asked.

use std::time::{Duration, Instant};

use fastrand::Rng;
use tidegate_pipeline::Client;
use tidegate_pipeline::test_util::RedisCluster;

use crate::support::eventually;
use crate::support::load::{Load, check_books, check_not_doubled, keys_where};

/// A run by hand sets this to 600 or more. Then memory is checked too: in a short run other tests share the process.
const SECONDS: &str = "TIDEGATE_FAULT_SECONDS";

#[expect(
    clippy::disallowed_methods,
    reason = "how long to run is up to whoever starts the tests"
)]
fn by_hand() -> Option<Duration> {
    let seconds = std::env::var(SECONDS)
        .ok()?
        .parse()
        .expect("TIDEGATE_FAULT_SECONDS is a number of seconds");
    Some(Duration::from_secs(seconds))
}

/// Resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_at_random_mix_up_and_double_and_leak_nothing() {
    let mut cluster = RedisCluster::start(3, 1).await;
    let client = Client::new(cluster.config()).unwrap();
    let load = Load::start(
        &client,
        &keys_where(24, |_| true),
        Duration::from_millis(500),
    );
    load.goes_on_for(1_000).await;
    let seed = fastrand::u64(..);
    let mut rng = Rng::with_seed(seed);
    let length = by_hand().unwrap_or(Duration::from_secs(10));
    let (end, mut warm) = (Instant::now() + length, None);
    let mut faults = Vec::new();
    while Instant::now() < end {
        if Instant::now() + length * 3 / 4 > end && warm.is_none() {
            warm = Some(resident());
        }
        faults.push(fault(&mut cluster, &mut rng).await);
        whole(&cluster).await;
        load.goes_on_for(300).await;
    }
    let tallies = load.stop().await;
    assert!(
        tallies.iter().all(|tally| tally.acknowledged > 0),
        "seed {seed}: {faults:?}"
    );
    check_not_doubled(&client, &tallies).await;
    check_books(&client).await;
    let stats = client.stats();
    assert!(stats.connections <= 6 * 4, "seed {seed}: {stats:?}");
    if let (Some(_), Some(warm)) = (by_hand(), warm) {
        let now = resident();
        assert!(
            now < warm + 16 * 1024,
            "{warm} KiB became {now}, seed {seed}"
        );
    }
    client.close().await;
    assert_eq!(client.stats().connections, 0);
}

async fn fault(cluster: &mut RedisCluster, rng: &mut Rng) -> (u8, usize) {
    let (kind, node) = (rng.u8(..5), rng.usize(..6));
    let pause = Duration::from_millis(rng.u64(..900));
    match kind {
        0 => {
            cluster.servers()[node].pause();
            tokio::time::sleep(pause).await;
            cluster.servers()[node].resume();
        }
        1 => _ = cluster.servers()[node].raw("CLUSTER FAILOVER"),
        2 => _ = cluster.servers()[node].raw("CLIENT KILL TYPE normal"),
        3 => _ = cluster.servers()[node].raw(&format!("DEBUG SLEEP {}", pause.as_secs_f64())),
        _ => {
            cluster.server_mut(node).kill();
            tokio::time::sleep(pause * 2).await;
            cluster.server_mut(node).restart().await;
        }
    }
    (kind, node)
}

/// Waits until every slot has a primary and every primary a replica in step, so that no fault meets a cluster that could
/// not survive it.
async fn whole(cluster: &RedisCluster) {
    let mut infos = String::new();
    let end = Instant::now() + Duration::from_secs(60);
    let healthy = |infos: &mut String| {
        *infos = cluster
            .servers()
            .iter()
            .map(|server| server.raw("CLUSTER INFO\r\nINFO replication"))
            .collect();
        let count = |text: &str| infos.matches(text).count();
        (
            count("cluster_state:ok"),
            count("role:master"),
            count("master_link_status:up"),
            count("state=online"),
        ) == (6, 3, 3, 3)
    };
    while !healthy(&mut infos) {
        assert!(
            Instant::now() < end,
            "the cluster did not recover:\n{infos}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eventually("replicas have a primary with slots", async || {
        let nodes = cluster.servers()[0].raw("CLUSTER NODES");
        !nodes.contains("fail") || nodes.lines().filter(|line| line.contains("fail")).count() == 0
    })
    .await;
}
