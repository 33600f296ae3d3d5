//! Workflows over HTTP: a real server on SQLite or on Redis, and bodies as clients write them.

mod absent;
mod answers;
mod attention;
mod clients;
mod clocks;
mod failures;
mod handlers;
mod kill;
mod life;
mod limits;
mod list;
mod notes;
mod operate;
mod page;
mod protocol;
mod run;
mod search;
mod servers;
mod shown;
mod terms;
mod test_clock;
mod trouble;
mod watch;
mod who;
mod workers;

use std::net::SocketAddr;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_pipeline::test_util::RedisServer;

use crate::support::{Answer, Server, http_with};

/// A server with an API, and where its workflows live.
pub(crate) struct Flows {
    pub(crate) server: Server,
    /// Its file, or none when it is in Redis.
    data: TempDir,
}

impl Flows {
    /// A server on a file of its own.
    pub(crate) fn start(more: &[(&str, &str)]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("data");
        let ours = [
            ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
            ("TIDEGATE_DATA_DIR", folder.to_str().unwrap()),
        ];
        let more = [&ours[..], more].concat();
        // What comes last is what counts.
        let given = |at: usize| more[at + 1..].iter().any(|(name, _)| *name == more[at].0);
        let kept: Vec<_> = (0..more.len())
            .filter(|&at| !given(at))
            .map(|at| more[at])
            .collect();
        Self {
            server: Server::start_bare(&kept),
            data,
        }
    }

    /// A server on this Redis.
    pub(crate) fn on(redis: &RedisServer) -> Self {
        let url = redis.address().to_string();
        let flows = Self::start(&[("REDIS_URL", &url), ("REDIS_SOCKET_TYPE", "tcp")]);
        assert!(
            !flows.data.path().join("data").exists(),
            "with Redis there is no file"
        );
        flows
    }

    pub(crate) fn api(&self) -> SocketAddr {
        self.server.started.addresses.api.unwrap()
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        ask(self.api(), method, path, headers, body)
    }

    /// What a GET that must succeed finds.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        found(self.ask("GET", path, &[], ""))
    }

    /// What a POST that must succeed answers.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: Value) -> Value {
        found(self.ask("POST", path, &[], &body.to_string()))
    }

    /// Status, code and path of a POST that must fail.
    #[track_caller]
    pub(crate) fn refused(&self, path: &str, body: Value) -> (u16, String, Value) {
        problem(&self.ask("POST", path, &[], &body.to_string()))
    }

    /// Creates a workflow and returns its id.
    #[track_caller]
    pub(crate) fn create(&self, body: Value) -> String {
        self.post("/v1/workflows", body)["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Claims up to `limit` jobs without waiting.
    #[track_caller]
    pub(crate) fn claim(&self, limit: usize) -> Vec<Value> {
        let claim = json!({"queues": ["default"], "worker": "w", "limit": limit});
        self.post("/v1/jobs/claim", claim)["jobs"]
            .as_array()
            .unwrap()
            .clone()
    }

    /// Reports that a job succeeded, with an output.
    #[track_caller]
    pub(crate) fn succeed(&self, job: &Value, output: Value) -> Value {
        let report = json!({"lease": job["lease"], "outcome": "succeeded", "output": output});
        self.post("/v1/jobs/report", json!({"reports": [report]}))["reports"][0].clone()
    }

    /// Reports that a job failed, for good.
    #[track_caller]
    pub(crate) fn fail(&self, job: &Value) -> Value {
        let error = json!({"kind": "ValueError", "message": "no such thing", "trace": "line 1"});
        let report =
            json!({"lease": job["lease"], "outcome": "failed", "error": error, "retry": "never"});
        self.post("/v1/jobs/report", json!({"reports": [report]}))["reports"][0].clone()
    }
}

pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let host = address.to_string();
    let given = headers.iter().any(|(name, _)| *name == "host");
    let host = if given {
        &[][..]
    } else {
        &[("host", host.as_str())][..]
    };
    http_with(
        address,
        method,
        path,
        &[host, headers].concat(),
        body.as_bytes(),
    )
}

#[track_caller]
pub(crate) fn found(answer: Answer) -> Value {
    assert!((200..300).contains(&answer.status), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    serde_json::from_str(&answer.body).unwrap()
}

#[track_caller]
pub(crate) fn problem(answer: &Answer) -> (u16, String, Value) {
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json"),
        "{answer:?}"
    );
    let problem: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(problem["status"], answer.status);
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| !detail.is_empty()),
        "{problem}"
    );
    let code = problem["code"].as_str().unwrap().to_owned();
    assert_eq!(problem["type"], format!("urn:tidegate:problem:{code}"));
    (answer.status, code, problem["path"].clone())
}

/// Does the same on a server with a file and on one with a Redis.
pub(crate) fn on_each_store(test: impl Fn(&Flows)) {
    test(&Flows::start(&[]));
    let redis = redis();
    test(&Flows::on(&redis));
}

/// A Redis of the test's own.
pub(crate) fn redis() -> RedisServer {
    tokio::runtime::Runtime::new()
        .unwrap()
        .block_on(RedisServer::start())
}

/// A workflow of these jobs, each `name` or `name<parent,parent`.
pub(crate) fn workflow(name: &str, jobs: &str) -> Value {
    let job = |job: &str| {
        let (name, after) = job.split_once('<').unwrap_or((job, ""));
        let after: Vec<&str> = after.split(',').filter(|name| !name.is_empty()).collect();
        json!({"name": name, "handler": "Handler", "after": after})
    };
    json!({"name": name, "jobs": jobs.split(' ').map(job).collect::<Vec<_>>()})
}
