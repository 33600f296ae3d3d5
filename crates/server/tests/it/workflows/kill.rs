//! The real server, or a primary of its cluster, is killed under load. Whatever a client was told before is so afterwards, and all
//! that was begun comes to its end.

pub(super) mod client;
mod outage;
mod pieces;
mod random;
mod traffic;

use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};
use tidegate_pipeline::test_util::{RedisCluster, RedisServer, free_port};

use super::redis;
use crate::operate::process::Process;
use crate::support::variables;
use client::Client;
use traffic::{Loss, Told, Traffic};

const KILLS: usize = 5;

/// A server that is started again on its port, over the same store.
pub(super) struct Served {
    settings: Vec<(&'static str, String)>,
    pub(super) api: SocketAddr,
    process: Option<Process>,
}

impl Served {
    pub(super) fn start(store: &[(&'static str, String)]) -> Self {
        let api = SocketAddr::from(([127, 0, 0, 1], free_port()));
        // An outage makes it complain more than a pipe holds that nobody reads.
        let ours = [
            ("TIDEGATE_HTTP_ADDR", api.to_string()),
            ("LOG_LEVEL", "error".to_owned()),
        ];
        let mut served = Self {
            settings: [&ours[..], store].concat(),
            api,
            process: None,
        };
        served.start_again();
        served
    }

    fn settings(&self) -> Vec<(&str, &str)> {
        self.settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect()
    }

    pub(super) fn start_again(&mut self) {
        self.process = Some(Process::start(&self.settings()));
    }

    pub(super) fn kill(&mut self) {
        let process = self.process.take().expect("it runs");
        process.signal("KILL");
        process.end();
    }

    /// The address of what it answers there: `gRPC` or `HTTP`.
    pub(super) fn address(&self, what: &str) -> SocketAddr {
        self.process.as_ref().expect("it runs").address(what)
    }

    /// `tidegate store check` finds nothing; returns how many workflows there are.
    pub(super) fn check_store(&self) -> u64 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["store", "check", "-o", "json"])
            .env_clear()
            .envs(variables(&self.settings()));
        let output = command.output().unwrap();
        let (said, log) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert_eq!(output.status.code(), Some(0), "{said}{log}");
        let checked: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(checked["findings"], json!([]), "{checked}");
        checked["workflows"].as_u64().unwrap()
    }
}

/// Kills one of the servers at a time and starts it again.
fn servers_are_killed(servers: Vec<Served>) {
    nothing_is_lost(servers, |servers| {
        let which = fastrand::usize(..servers.len());
        servers[which].kill();
        servers[which].check_store();
        servers[which].start_again();
    });
}

/// Strikes again and again under load, at random moments. All that clients were told is so in the end.
fn nothing_is_lost(mut servers: Vec<Served>, mut strike: impl FnMut(&mut [Served])) {
    let traffic = Traffic::start(
        servers.iter().map(|server| server.api).collect(),
        Loss::Nothing,
    );
    for _ in 0..KILLS {
        traffic.goes_on(fastrand::usize(20..400));
        strike(&mut servers);
    }
    traffic.goes_on(50);
    let mut client = traffic.reader();
    let told = traffic.finish();
    let workflows = check_all_is_so(&mut client, &told);
    servers.iter_mut().for_each(Served::kill);
    assert_eq!(servers[0].check_store(), workflows);
}

/// Each key has one workflow, which succeeded, and each job returned what its worker was told was taken, and no other.
fn check_all_is_so(client: &mut Client, told: &Told) -> u64 {
    let counts = client.ask("GET", "/v1/workflows:count", "", "").unwrap().1;
    assert_eq!(
        (&counts["total"], &counts["by_status"]["succeeded"]),
        (&json!(told.created.len()), &counts["total"])
    );
    for (key, id) in &told.created {
        let shown = show(client, id)
            .unwrap_or_else(|| panic!("workflow {id} was created with key {key} and is gone"));
        for job in check_whole(&shown) {
            let name = job["name"].as_str().unwrap().to_owned();
            assert_eq!(
                Some(&job["output"]),
                told.succeeded.get(&(id.clone(), name)),
                "{key}: {job}"
            );
        }
    }
    for (id, parent, output) in &told.inputs {
        assert_eq!(
            told.succeeded.get(&(id.clone(), parent.clone())),
            Some(output),
            "what came from {parent} of {id}"
        );
    }
    told.created.len() as u64
}

fn show(client: &mut Client, id: &str) -> Option<Value> {
    let (status, shown) = client
        .ask("GET", &format!("/v1/workflows/{id}?view=full"), "", "")
        .unwrap();
    (status == 200).then_some(shown).or_else(|| {
        assert_eq!(status, 404);
        None
    })
}

/// The jobs of a workflow that is over: all of them, and they succeeded.
#[track_caller]
fn check_whole(shown: &Value) -> &[Value] {
    let jobs = shown["jobs"].as_array().unwrap();
    assert_eq!(
        (&shown["status"], jobs.len()),
        (&json!("succeeded"), traffic::JOBS.split(' ').count()),
        "{shown}"
    );
    assert!(
        jobs.iter()
            .all(|job| job["state"] == "succeeded" && job["output"].is_object()),
        "{shown}"
    );
    jobs
}

#[test]
fn a_server_that_is_killed_over_sqlite_loses_nothing_that_it_said() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    servers_are_killed(vec![Served::start(&[("TIDEGATE_DATA_DIR", data)])]);
}

#[test]
fn a_server_that_is_killed_over_redis_loses_nothing_that_it_said() {
    let redis = redis();
    servers_are_killed(vec![Served::start(&[(
        "REDIS_URL",
        redis.address().to_string(),
    )])]);
}

#[test]
fn of_two_servers_over_one_redis_either_may_be_killed() {
    let redis = redis();
    let store = [("REDIS_URL", redis.address().to_string())];
    servers_are_killed(vec![Served::start(&store), Served::start(&store)]);
}

/// With `appendfsync always` Redis answers only after what it did is on disk.
#[test]
fn a_redis_with_a_log_that_is_killed_loses_nothing_that_its_server_said() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut redis = runtime.block_on(RedisServer::start_with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]));
    let server = Served::start(&[("REDIS_URL", redis.address().to_string())]);
    nothing_is_lost(vec![server], |servers| {
        redis.kill();
        runtime.block_on(redis.restart());
        servers[0].check_store();
    });
}

/// What its replica had not heard is gone with it, as a whole: no workflow is left in halves, none is stuck, and others go on.
#[test]
fn a_cluster_whose_primary_is_killed_finishes_all_that_is_left() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut cluster = runtime.block_on(RedisCluster::start(3, 1));
    let nodes: Vec<String> = cluster
        .addresses()
        .iter()
        .map(ToString::to_string)
        .collect();
    let store = [
        ("REDIS_TYPE", "CLUSTER".to_owned()),
        ("REDIS_URL", nodes.join(",")),
    ];
    let server = Served::start(&store);
    let traffic = Traffic::start(vec![server.api], Loss::LastMoments);
    traffic.goes_on(fastrand::usize(200..600));
    cluster.server_mut(fastrand::usize(..3)).kill();
    // More than the partitions of the other primaries have to give: creators do not go on without their end.
    traffic.goes_on(3_000);
    let mut client = traffic.reader();
    let told = traffic.finish();
    let lost: Vec<&String> = told
        .created
        .values()
        .filter(|id| show(&mut client, id).is_none())
        .collect();
    eprintln!(
        "of {} acknowledged workflows {} were lost with the primary",
        told.created.len(),
        lost.len()
    );
    let present = all_workflows(&mut client);
    for id in &present {
        check_whole(&show(&mut client, id).unwrap());
    }
    assert!(present.len() >= told.created.len() - lost.len());
    assert_eq!(server.check_store(), present.len() as u64);
}

/// The ids of all workflows, page by page.
fn all_workflows(client: &mut Client) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/workflows?limit=1000&cursor={cursor}");
        let page = client.ask("GET", &path, "", "").unwrap().1;
        ids.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["id"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => return ids,
        }
    }
}
