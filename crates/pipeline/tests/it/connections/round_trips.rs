//! What a batch costs when every round trip takes long.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Address, AddressMap, Arg, Batch, Client, Parallelism};

use crate::support::proxy::{Mode, Proxy};
use crate::support::{send_one, soon};

/// What a round trip takes at least: far more than the work of Redis and of this process.
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// Eight times as many commands as travel in one piece.
const COMMANDS: usize = 4096;

fn increments(commands: usize) -> Batch {
    let mut batch = Batch::new();
    for index in 0..commands {
        let key = format!("key-{index}");
        batch
            .unit()
            .command("INCRBY", &[Arg::Key(key.as_bytes()), Arg::Integer(1)]);
    }
    batch
}

/// Sends a batch whose increments are all first ones, and returns how many round trips it took.
async fn round_trips(client: &Client, commands: usize) -> u32 {
    let start = Instant::now();
    let outcomes = client.send(increments(commands), soon()).await;
    let trips = start.elapsed().as_millis() / ROUND_TRIP.as_millis();
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.integer().unwrap() == 1)
    );
    u32::try_from(trips).unwrap()
}

/// Parts of a large batch for one node counted as groups, of which one was under way at a time.
#[tokio::test]
async fn a_large_batch_to_one_node_does_not_wait_for_its_own_parts() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port(), Mode::Forward).await;
    let mut config = proxy.config();
    config.parallelism = Parallelism::SERIAL;
    let client = Client::new(config).unwrap();
    send_one(&client, "PING", &[]).await.reply().unwrap();
    proxy.set(Mode::Delay(ROUND_TRIP));
    let trips = round_trips(&client, COMMANDS).await;
    assert!(trips <= 2, "{trips} round trips for {COMMANDS} commands");
}

#[tokio::test]
async fn parallelism_counts_nodes() {
    let cluster = RedisCluster::start(3, 0).await;
    for (setting, fewest, most) in [(1, 3, 4), (2, 2, 3), (3, 1, 2)] {
        let mut proxies = HashMap::new();
        for server in cluster.servers() {
            assert_eq!(server.raw("FLUSHALL"), "+OK\r\n");
            proxies.insert(
                server.port(),
                Proxy::start(server.port(), Mode::Forward).await,
            );
        }
        let reached: HashMap<u16, Address> = proxies
            .iter()
            .map(|(port, proxy)| (*port, proxy.address()))
            .collect();
        let mut config = cluster.config();
        config.parallelism = Parallelism::new(setting, 10).unwrap();
        config.address_map = Some(AddressMap::new(move |address| match &address {
            Address::Tcp { port, .. } => reached[port].clone(),
            Address::Unix(_) => address,
        }));
        let client = Client::new(config).unwrap();
        for index in 0..20 {
            send_one(
                &client,
                "GET",
                &[Arg::Key(format!("key-{index}").as_bytes())],
            )
            .await
            .reply()
            .unwrap();
        }
        proxies
            .values()
            .for_each(|proxy| proxy.set(Mode::Delay(ROUND_TRIP)));
        let trips = round_trips(&client, COMMANDS).await;
        assert!(
            (fewest..=most).contains(&trips),
            "{trips} round trips with {setting} nodes at once"
        );
    }
}
