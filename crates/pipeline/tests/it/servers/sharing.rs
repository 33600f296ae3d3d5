//! What the clients of one process know together. A server has one client for each core.

use std::sync::{Arc, Barrier};

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{Arg, Client, Config};

use super::cluster::move_slot;
use crate::support::{eventually, send_one};

const CORES: usize = 8;

/// How often the nodes were asked who owns what. Starting a cluster asks no such thing.
fn questions(cluster: &RedisCluster) -> usize {
    let asked = |server: &RedisServer| {
        let stats = server.raw("INFO commandstats");
        let line = stats
            .lines()
            .find(|line| line.starts_with("cmdstat_cluster|slots:"))
            .unwrap_or_default();
        line.split(['=', ','])
            .nth(1)
            .map_or(0, |calls| calls.parse::<usize>().unwrap())
    };
    cluster.servers().iter().map(asked).sum()
}

fn redirects(clients: &[Client]) -> u64 {
    clients.iter().map(|client| client.stats().moved).sum()
}

/// Sends a command for this key with each client.
async fn use_all(clients: &[Client]) {
    for client in clients {
        send_one(client, "GET", &[Arg::Key(b"{t}1")])
            .await
            .reply()
            .unwrap();
    }
}

/// Each client asked for itself, and learned of a moved slot by a redirect of its own.
#[tokio::test]
async fn a_slot_that_moved_is_learned_once_for_all_clients() {
    let cluster = RedisCluster::start(3, 0).await;
    let clients: Vec<Client> = (0..CORES)
        .map(|_| Client::new(cluster.config()).unwrap())
        .collect();
    use_all(&clients).await;
    let mut owner = cluster.owner("{t}1");
    for moves in 1..=3 {
        let next = (owner + 1) % 3;
        move_slot(&cluster, "{t}1", owner, next);
        owner = next;
        // While the first one follows the redirect, the others hear of it.
        use_all(&clients).await;
        assert_eq!(redirects(&clients), moves);
    }
}

/// Every core asked the servers who owns what, at the start and after each move.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn questions_do_not_grow_with_the_number_of_cores() {
    let cluster = RedisCluster::start(3, 0).await;
    // Two nodes have to agree.
    let refresh = 2;
    run_cores(cluster.config()).await;
    let at_start = questions(&cluster);
    assert!(
        (1..=refresh).contains(&at_start),
        "{at_start} questions at the start"
    );

    let clients: Vec<Client> = (0..CORES)
        .map(|_| Client::new(cluster.config()).unwrap())
        .collect();
    use_all(&clients).await;
    let before = questions(&cluster);
    let owner = cluster.owner("{t}1");
    move_slot(&cluster, "{t}1", owner, (owner + 1) % 3);
    use_all(&clients).await;
    eventually("somebody asks again", async || questions(&cluster) > before).await;
    let refreshes = || {
        clients
            .iter()
            .map(|client| client.stats().refreshes)
            .sum::<u64>()
    };
    eventually("the answer is there", async || {
        refreshes() >= 2 && questions(&cluster) >= before + refresh
    })
    .await;
    assert!(
        questions(&cluster) <= before + 2 * refresh,
        "{} questions after a move",
        questions(&cluster) - before
    );
}

/// Uses the cluster from so many threads at once as there are cores, with a client and a runtime for each.
async fn run_cores(config: Config) {
    let all_have_answers = Arc::new(Barrier::new(CORES));
    let cores: Vec<_> = (0..CORES)
        .map(|_| {
            let (config, all_have_answers) = (config.clone(), Arc::clone(&all_have_answers));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let client = Client::new(config).unwrap();
                    use_all(std::slice::from_ref(&client)).await;
                    all_have_answers.wait();
                    client.close().await;
                });
            })
        })
        .collect();
    tokio::task::spawn_blocking(|| cores.into_iter().for_each(|core| core.join().unwrap()))
        .await
        .unwrap();
}

/// Whose turn it is to ask may end before it did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_ends_keeps_no_other_from_asking() {
    let cluster = RedisCluster::start(3, 0).await;
    let mut clients: Vec<Client> = (0..4)
        .map(|_| Client::new(cluster.config()).unwrap())
        .collect();
    use_all(&clients).await;
    let mut owner = cluster.owner("{t}1");
    while clients.len() > 1 {
        let asked = questions(&cluster);
        // Each wants to ask now. The first waits until a second has passed since the last question, and ends meanwhile.
        for _ in 0..2 {
            move_slot(&cluster, "{t}1", owner, (owner + 1) % 3);
            owner = (owner + 1) % 3;
            use_all(&clients).await;
            clients.rotate_left(1);
        }
        clients.pop().unwrap().close().await;
        eventually("somebody asks", async || questions(&cluster) > asked).await;
    }
    let asked = questions(&cluster);
    let late = Client::new(cluster.config()).unwrap();
    use_all(std::slice::from_ref(&late)).await;
    assert_eq!(
        late.stats().refreshes,
        0,
        "a new client knows what the others do"
    );
    assert!(questions(&cluster) <= asked + 2);
}
