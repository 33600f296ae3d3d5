//! A Redis Cluster in which a node is gone.

use super::*;

/// A cluster that serves what its living nodes have.
async fn partial_cluster() -> RedisCluster {
    let cluster = RedisCluster::start(3, 0).await;
    for server in cluster.servers() {
        assert_eq!(
            server.raw("CONFIG SET cluster-require-full-coverage no"),
            "+OK\r\n"
        );
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_living_nodes_of_a_cluster_have_is_served_and_the_rest_is_named() {
    let mut cluster = partial_cluster().await;
    let options = RedisOptions::new("test:", 16, Duration::from_secs(2)).unwrap();
    let client = Client::new(cluster.config()).unwrap();
    let store = RedisStore::open(client, options).await.unwrap();
    let engine = server(&Store::Redis(store)).await;
    for _ in 0..200 {
        create(&engine, "a", StartMode::Now).await;
    }
    let all = engine.count(&Filter::default()).await.unwrap();
    assert!(all.missing.is_empty());
    // The names of queues stay, so that the list of queues has something to say.
    let dead = (cluster.owner("test:queues") + 1) % 3;
    cluster.server_mut(dead).kill();
    let page = first_page_without_some(&engine).await;
    let missing: Vec<Partition> = page.missing.0.keys().copied().collect();
    assert!((4..=7).contains(&missing.len()), "{missing:?}");
    let lives = |id: &WorkflowId| !missing.contains(&id.partition());
    assert!(page.items.len() > 100 && page.items.iter().all(|item| lives(&item.workflow)));
    let count = engine.count(&Filter::default()).await.unwrap();
    assert_eq!(
        count.found.iter().map(|(_, number)| number).sum::<u64>(),
        page.items.len() as u64
    );
    assert!(count.missing.0.keys().eq(&missing));
    let queues = engine.queue_states().await.unwrap();
    assert_eq!(
        (queues.found[0].ready, queues.missing.0.len()),
        (page.items.len() as u64, missing.len())
    );
    // Creations go where they can, and the jobs there are handed out and reported.
    for _ in 0..30 {
        let id = create(&engine, "a", StartMode::Now).await;
        assert!(lives(&id), "{id}");
    }
    work(&engine, page.items.len() + 30).await;
    assert_eq!(engine.sweep_working(at(3)).await, Ok(false));
    let refused = create_with_keys(&engine, lives).await;
    assert!((1..30).contains(&refused), "{refused} of 30");
}

/// The first list of workflows that names partitions without an answer. Those who ask first find out.
async fn first_page_without_some(engine: &Engine) -> Page {
    loop {
        let all = Query {
            limit: 1_000,
            ..Query::default()
        };
        let page = engine.list(&all).await.unwrap();
        if !page.missing.is_empty() {
            return page;
        }
    }
}

/// Claims all ready jobs, which are `wanted`, and reports them.
async fn work(engine: &Engine, wanted: usize) {
    let mut claimed = Vec::new();
    for _ in 0..20 {
        // Some that are remembered cannot be claimed any more.
        claimed.extend(engine.claim(&claim(1_000), at(1)).await.unwrap_or_default());
        let _ = engine.poll_store().await;
    }
    assert_eq!(claimed.len(), wanted);
    for claimed in &claimed {
        succeed(engine, claimed.lease, 2).await.unwrap();
    }
}

/// Creates 30 workflows with keys. A key decides the partition. Where that is gone, the answer says so. Returns how many are refused.
async fn create_with_keys(engine: &Engine, lives: impl Fn(&WorkflowId) -> bool) -> usize {
    let mut refused = 0;
    for key in 0..30 {
        let definition = Definition {
            idempotency_key: Some(key.to_string()),
            ..definition("a")
        };
        let new = crate::support::new(definition, StartMode::Now);
        match engine.create(vec![new], at(4)).await.remove(0) {
            Ok(created) => assert!(lives(&created.workflow)),
            Err(error) => {
                assert!(matches!(error, EngineError::Store(_)), "{error}");
                refused += 1;
            }
        }
    }
    refused
}

/// A cluster in which one node has the facts and the registers, that node, and how to open the store.
async fn cluster_with_registers_in_one_place() -> (RedisCluster, usize, RedisOptions) {
    let cluster = partial_cluster().await;
    let owners = |prefix: &String| {
        ["meta", "queues", "names"].map(|key| cluster.owner(&format!("{prefix}{key}")))
    };
    let mut prefixes = (0..).map(|number| format!("t{number}:"));
    let prefix = prefixes
        .find(|prefix| owners(prefix).windows(2).all(|pair| pair[0] == pair[1]))
        .unwrap();
    let own = owners(&prefix)[0];
    (
        cluster,
        own,
        RedisOptions::new(prefix, 16, Duration::from_secs(2)).unwrap(),
    )
}

async fn server_on(cluster: &RedisCluster, options: &RedisOptions) -> Engine {
    let all = Config::cluster(cluster.servers().iter().map(RedisServer::address).collect());
    let opened = RedisStore::open(Client::new(all).unwrap(), options.clone()).await;
    server(&Store::Redis(
        opened.expect("facts and registers are there"),
    ))
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_beside_a_dead_node() {
    let (mut cluster, own, options) = cluster_with_registers_in_one_place().await;
    create(&server_on(&cluster, &options).await, "a", StartMode::Now).await;
    cluster.server_mut((own + 1) % 3).kill();
    let next = server_on(&cluster, &options).await;
    let _ = next.sweep_working(at(0)).await;
    for _ in 0..20 {
        create(&next, "a", StartMode::Now).await;
    }
    assert!(!next.queue_states().await.unwrap().missing.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_listed_without_the_node_with_registers() {
    let (mut cluster, own, options) = cluster_with_registers_in_one_place().await;
    let engine = server_on(&cluster, &options).await;
    create(&engine, "a", StartMode::Now).await;
    cluster.server_mut(own).kill();
    let _ = engine.sweep_working(at(0)).await;
    probe_all(&engine).await;
    for _ in 0..20 {
        create(&engine, "a", StartMode::Now).await;
    }
    let queues = engine.queue_states().await.unwrap();
    assert!(!queues.found.is_empty() && !queues.missing.is_empty());
}
