//! Eight clients do at random whatever the API lets them do, at two servers on one Redis, while servers and Redis are killed. Then all that was
//! started can be finished, no job was handed to two at once, and inputs and outputs are those that were reported.

mod deeds;
mod ledger;
mod person;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;

use super::client::Client;
use super::{Served, show};
use crate::support::number;
use ledger::{Ledger, as_sent};
use person::{Person, QUEUES};

const CLIENTS: u64 = 8;
/// How long clients go on, in seconds. By hand longer.
const LASTS: u64 = 8;
const LONGER: &str = "TIDEGATE_RANDOM_SECONDS";
const SEED: &str = "TIDEGATE_RANDOM_SEED";
/// All leases that are lost end within seconds.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn whatever_clients_do_while_servers_and_stores_die_all_can_be_finished() {
    let seed = number(SEED).unwrap_or_else(|| fastrand::u64(..1_000_000));
    eprintln!("{SEED}={seed}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut redis = runtime.block_on(RedisServer::start_with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]));
    let store = [
        ("REDIS_URL", redis.address().to_string()),
        ("TIDEGATE_PARTITIONS", "4".to_owned()),
    ];
    let mut servers = [Served::start(&store), Served::start(&store)];
    let ledger = Arc::new(Ledger::default());
    let over = Arc::new(AtomicBool::new(false));
    let addresses: Arc<[_]> = servers.iter().map(|server| server.api).collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client = Client::new(Arc::clone(&addresses), number as usize, Arc::clone(&over));
            let person = Person::new(
                number,
                Rng::with_seed(seed * CLIENTS + number),
                client,
                Arc::clone(&ledger),
            );
            std::thread::spawn(move || person.live())
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(number(LONGER).unwrap_or(LASTS));
    let mut rng = Rng::with_seed(seed);
    while Instant::now() < until && !clients.iter().any(std::thread::JoinHandle::is_finished) {
        std::thread::park_timeout(Duration::from_millis(rng.u64(300..1_500)));
        match rng.u8(..5) {
            0 => {
                redis.kill();
                runtime.block_on(redis.restart());
            }
            1 => {
                // Servers do not hear of it, and may think that the time has stood still.
                redis.pause();
                std::thread::park_timeout(Duration::from_millis(200));
                redis.resume();
            }
            which => {
                let server = &mut servers[usize::from(which) % 2];
                server.kill();
                server.start_again();
            }
        }
    }
    over.store(true, Relaxed);
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    let mut client = Client::new(addresses, 0, Arc::default());
    finish(&mut client, &ledger);
    check(&mut client, &ledger);
    servers.iter_mut().for_each(Served::kill);
    let _workflows = servers[0].check_store();
}

/// Everything that anybody held back goes on, and one worker does all the rest.
fn finish(client: &mut Client, ledger: &Ledger) {
    for queue in QUEUES {
        // A queue that no job ever named is not known.
        let _answer = client
            .ask("POST", &format!("/v1/queues/{queue}:resume"), "", "")
            .unwrap();
    }
    let until = Instant::now() + PATIENCE;
    loop {
        for (action, status) in [("start", "pending"), ("resume", "paused")] {
            let bulk = json!({"action": action, "filter": {"status": status}, "limit": 1000});
            assert_eq!(client.post("/v1/workflows:bulk", &bulk).unwrap().0, 200);
        }
        let claim = json!({"queues": QUEUES, "worker": "last", "limit": 1000, "wait": "300ms", "lease": "30s"});
        let (status, answer) = client.post("/v1/jobs/claim", &claim).unwrap();
        assert_eq!(status, 200, "{answer}");
        let jobs = answer["jobs"].as_array().unwrap();
        jobs.iter().for_each(|job| ledger.see_inputs(job));
        let reports: Vec<Value> = jobs.iter().map(|job| ledger.success(job, "last")).collect();
        if !reports.is_empty() {
            let (status, answer) = client
                .post("/v1/jobs/report", &json!({"reports": as_sent(&reports)}))
                .unwrap();
            assert_eq!(status, 200, "{answer}");
            ledger.accept(&reports, &answer);
        }
        let open: u64 = ["pending", "running", "paused"]
            .iter()
            .map(|status| {
                let path = format!("/v1/workflows:count?status={status}");
                client.ask("GET", &path, "", "").unwrap().1["total"]
                    .as_u64()
                    .unwrap()
            })
            .sum();
        if open == 0 {
            return;
        }
        if Instant::now() > until {
            let page = client
                .ask("GET", "/v1/workflows?status=running&limit=1", "", "")
                .unwrap()
                .1;
            let id = page["items"][0]["id"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let queues = client.ask("GET", "/v1/queues", "", "").unwrap().1;
            panic!(
                "{open} workflows do not end, as {:?}\n{queues}",
                show(client, &id)
            );
        }
    }
}

/// What clients were told is so.
fn check(client: &mut Client, ledger: &Ledger) {
    let mut outputs: BTreeMap<(String, String), Value> = BTreeMap::new();
    for id in ledger.known() {
        let Some(shown) = show(client, &id) else {
            assert!(ledger.may_be_gone(&id), "{id} was created, and is gone");
            continue;
        };
        for job in shown["jobs"].as_array().unwrap() {
            let name = job["name"].as_str().unwrap().to_owned();
            ledger.check_output(&id, &name, job);
            outputs.insert((id.clone(), name), job["output"].clone());
        }
    }
    ledger.check_inputs(&outputs);
    ledger.check_nothing_is_wrong();
}
