//! An API of our own, and requests to it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_api::{
    Access, Api, ApiMetrics, Availability, ConfigurationSource, GatewayTotals, LimitUse, Loads,
    Peer, RateLimits, ServerHooks, Traces,
};
use tidegate_ratelimit::{Limiter, MemoryBounds, MemoryStore, Options, OverrideStore};
use tidegate_workflow::{Engine, EngineOptions, SqliteOptions, SqliteStore, Store, Timestamp};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

/// Largest body that is read, in bytes.
pub(crate) const MAX_BODY: usize = 2_000_000;

/// An API over a new file.
pub(crate) struct Flows {
    router: Router,
    runtime: Runtime,
    _folder: TempDir,
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: axum::http::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Flows {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("workflows.db");
        let store = SqliteStore::open(&file, &SqliteOptions::default()).unwrap();
        let runtime = Runtime::new().unwrap();
        let started = Engine::start(Store::Sqlite(store), EngineOptions::default());
        let engine = runtime.block_on(started).unwrap();
        engine.begin_serving(now());
        let access = Access {
            tokens: None,
            anonymous: false,
            scope: tidegate_api::Scope::Full,
            max_body: MAX_BODY,
            max_streams: 16,
        };
        let api = Api::new(access, Arc::new(ApiMetrics::default()), host());
        api.open(engine);
        Self {
            router: api.router(),
            runtime,
            _folder: folder,
        }
    }

    /// The answer to a request of this machine.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1:7070")
            .extension(Peer(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        for &(name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let mut router = self.router.clone();
        self.runtime.block_on(async {
            let (head, body) = router.call(request).await.unwrap().into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                body: String::from_utf8(body.to_vec()).unwrap(),
            }
        })
    }

    /// What a GET that must succeed finds.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        found(&self.ask("GET", path, &[], ""))
    }

    /// What a POST that must succeed answers.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: Value) -> Value {
        found(&self.ask("POST", path, &[], &body.to_string()))
    }

    /// Creates a workflow and returns its id.
    #[track_caller]
    pub(crate) fn create(&self, body: Value) -> String {
        let created = self.post("/v1/workflows", body);
        created["id"].as_str().unwrap().to_owned()
    }

    /// A job that is claimed without waiting.
    #[track_caller]
    pub(crate) fn claim(&self) -> Value {
        let claim = json!({"queues": ["default"], "worker": "w"});
        let job = self.post("/v1/jobs/claim", claim)["jobs"][0].take();
        assert!(job.is_object(), "there is no job");
        job
    }

    /// Reports that a job succeeded, with an output.
    #[track_caller]
    pub(crate) fn succeed(&self, job: &Value, output: Value) -> Value {
        let report = json!({"lease": job["lease"], "outcome": "succeeded", "output": output});
        self.post("/v1/jobs/report", json!({"reports": [report]}))["reports"][0].take()
    }

    /// Reports that a job failed, for good.
    #[track_caller]
    pub(crate) fn fail(&self, job: &Value) {
        let error = json!({"kind": "ValueError", "message": "no such thing", "trace": "line 1"});
        let report =
            json!({"lease": job["lease"], "outcome": "failed", "error": error, "retry": "never"});
        self.post("/v1/jobs/report", json!({"reports": [report]}));
    }
}

#[track_caller]
fn found(answer: &Answer) -> Value {
    assert!((200..300).contains(&answer.status), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

/// A problem that is whole.
#[track_caller]
pub(crate) fn problem(answer: &Answer) -> Value {
    let kind = answer.header("content-type");
    assert_eq!(kind, Some("application/problem+json"), "{answer:?}");
    let problem = answer.json();
    assert_eq!(problem["status"], answer.status);
    let detail = problem["detail"].as_str().unwrap();
    assert!(!detail.is_empty(), "{problem}");
    let code = problem["code"].as_str().unwrap();
    assert_eq!(problem["type"], format!("urn:tidegate:problem:{code}"));
    problem
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

/// A text of the repository.
pub(crate) fn document(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

fn now() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap())
}

/// A process that serves nothing else.
fn host() -> ServerHooks {
    let store = tidegate_ratelimit::Store::Memory(MemoryStore::new(MemoryBounds::default()));
    ServerHooks {
        version: "test",
        clock: Arc::new(now),
        test_clock: None,
        serving: Arc::new(|| true),
        drains_until: Arc::new(|| None),
        stores: Arc::default(),
        counter_store_health: Arc::new(|| Availability::Up),
        totals: Arc::new(GatewayTotals::default),
        history: Arc::default(),
        limits: RateLimits {
            limiter: Limiter::new(store, Options::default()),
            overrides: OverrideStore::memory(),
            clock: tidegate_ratelimit::Timestamp::default,
        },
        loads: Arc::new(|| Arc::new(built_in())),
        limit_uses: Arc::new(|slots| vec![LimitUse::default(); slots.len()]),
        traces: Traces {
            caller: |_| None,
            exporter: None,
        },
        drain: CancellationToken::new(),
        tasks: TaskTracker::new(),
    }
}

fn built_in() -> Loads {
    Loads {
        source: ConfigurationSource::BuiltIn,
        place: String::new(),
        counting_since: tidegate_ratelimit::Timestamp(0),
        active: None,
        refused: None,
        unreadable: Vec::new(),
        paths: std::collections::HashMap::new(),
    }
}
