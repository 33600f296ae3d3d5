//! Who creates and who works, and what they were told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::workflow;
use super::client::Client;
use crate::support::await_that;

/// Two diamonds in a row.
pub(super) const JOBS: &str = "a b<a c<a d<b,c e<d f<d g<e,f";
/// What each job is after, in the order of the definition.
const AFTER: [(&str, &[&str]); 7] = [
    ("a", &[]),
    ("b", &["a"]),
    ("c", &["a"]),
    ("d", &["b", "c"]),
    ("e", &["d"]),
    ("f", &["d"]),
    ("g", &["e", "f"]),
];
/// One with single requests, one with batches.
const CREATORS: usize = 2;
const WORKERS: usize = 3;
/// Workflows of a batch.
const BATCH: usize = 8;
/// Workflows that are not over at the same time: creators do not run away from the workers.
const AHEAD: usize = 150;

/// All is over then: other servers take over what a dead one was to do after ten seconds, and one job after the other may lose its lease of five.
const ENDED: Duration = Duration::from_secs(60);

/// What must be so afterwards, because somebody was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Ids by key.
    pub(super) created: BTreeMap<String, String>,
    /// What the jobs returned whose success was taken, by workflow and name.
    pub(super) succeeded: BTreeMap<(String, String), Value>,
    /// What jobs were given: workflow, parent, its output.
    pub(super) inputs: Vec<(String, String, Value)>,
    /// Workflows that are over.
    over: BTreeSet<String>,
    /// Of all kinds.
    things: usize,
}

/// What an outage may take with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Nothing,
    /// The last moments of a partition, of which a replica had not heard.
    LastMoments,
}

#[derive(Debug)]
struct Shared {
    told: Mutex<Told>,
    loss: Loss,
    creating: AtomicBool,
}

/// Creators and workers at it, until they are stopped or dropped.
pub(super) struct Traffic {
    shared: Arc<Shared>,
    servers: Arc<[SocketAddr]>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    pub(super) fn start(servers: Vec<SocketAddr>, loss: Loss) -> Self {
        let shared = Arc::new(Shared {
            told: Mutex::default(),
            loss,
            creating: AtomicBool::new(true),
        });
        let (servers, over): (Arc<[SocketAddr]>, _) =
            (servers.into(), Arc::new(AtomicBool::new(false)));
        let mut traffic = Self {
            shared,
            servers,
            over,
            threads: Vec::new(),
        };
        traffic.spawn(|client, shared| create(client, shared, "one"));
        traffic.spawn(create_batches);
        for _ in 0..WORKERS {
            traffic.spawn(work);
        }
        traffic
    }

    fn spawn(&mut self, run: impl FnOnce(&mut Client, &Shared) + Send + 'static) {
        let mut client = self.client();
        let shared = Arc::clone(&self.shared);
        self.threads
            .push(std::thread::spawn(move || run(&mut client, &shared)));
    }

    fn client(&self) -> Client {
        Client::new(
            Arc::clone(&self.servers),
            self.threads.len(),
            Arc::clone(&self.over),
        )
    }

    /// A client that outlives the traffic.
    pub(super) fn reader(&self) -> Client {
        Client::new(Arc::clone(&self.servers), 0, Arc::default())
    }

    /// Waits until clients were told so many things more.
    #[track_caller]
    pub(super) fn goes_on(&self, more: usize) {
        let things = || self.shared.told.lock().unwrap().things;
        let enough = things() + more;
        await_that("clients are told more", || {
            things() >= enough || self.threads.iter().any(JoinHandle::is_finished)
        });
        assert!(things() >= enough, "a client gave up");
    }

    /// Creates no more, waits until all that there is is over, and returns what was told.
    pub(super) fn finish(mut self) -> Told {
        self.shared.creating.store(false, Relaxed);
        let mut client = self.client();
        let until = Instant::now() + ENDED;
        loop {
            let page = client
                .ask("GET", "/v1/workflows?status=running&limit=1", "", "")
                .unwrap()
                .1;
            let (creators, workers) = self.threads.split_at(CREATORS);
            assert!(
                !workers.iter().any(JoinHandle::is_finished),
                "a worker gave up"
            );
            let Some(open) = page["items"].as_array().unwrap().first() else {
                if creators.iter().all(JoinHandle::is_finished) {
                    break;
                }
                continue;
            };
            let mut shown = || {
                client.ask(
                    "GET",
                    &format!("/v1/workflows/{}?view=full", open["id"].as_str()?),
                    "",
                    "",
                )
            };
            assert!(Instant::now() < until, "it does not end: {:?}", shown());
            std::thread::park_timeout(Duration::from_millis(5));
        }
        self.over.store(true, Relaxed);
        self.threads
            .drain(..)
            .for_each(|thread| thread.join().unwrap());
        std::mem::take(&mut *self.shared.told.lock().unwrap())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // The test has failed already when there are any left.
            let _failed_too = thread.join();
        }
    }
}

impl Shared {
    fn told(&self, change: impl FnOnce(&mut Told)) {
        let mut told = self.told.lock().unwrap();
        told.things += 1;
        change(&mut told);
    }

    /// Waits until more workflows are wanted; false when no more are.
    fn is_wanted(&self, client: &Client) -> bool {
        loop {
            if !self.creating.load(Relaxed) || client.is_over() {
                return false;
            }
            let told = self.told.lock().unwrap();
            if told.created.len().saturating_sub(told.over.len()) < AHEAD {
                return true;
            }
            drop(told);
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    fn created(&self, key: &str, answer: &Value) {
        let id = answer["id"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned();
        self.told(|told| assert_eq!(told.created.insert(key.to_owned(), id), None));
    }
}

/// A workflow that knows its key. One of its jobs waits a moment, so that there are timers, and all are tried again.
fn definition(key: &str) -> Value {
    let mut definition = workflow("kill", JOBS);
    definition["globals"] = json!({"key": key});
    definition["jobs"][2]["wait"] = json!("10ms");
    for job in definition["jobs"].as_array_mut().unwrap() {
        job["retries"] = json!(20);
        job["backoff"] = json!("5ms");
        job["backoff_max"] = json!("20ms");
    }
    definition
}

fn create(client: &mut Client, shared: &Shared, name: &str) {
    let mut number = 0;
    while shared.is_wanted(client) {
        let key = format!("{name}-{number}");
        number += 1;
        let header = format!("idempotency-key: {key}\r\n");
        let body = definition(&key).to_string();
        let Some((status, answer)) = client.ask("POST", "/v1/workflows", &header, &body) else {
            return;
        };
        assert!(matches!(status, 200 | 201), "{answer}");
        shared.created(&key, &answer);
    }
}

fn create_batches(client: &mut Client, shared: &Shared) {
    let mut number = 0;
    while shared.is_wanted(client) {
        let mut keys: Vec<String> = (0..BATCH)
            .map(|at| format!("batch-{number}-{at}"))
            .collect();
        number += 1;
        // What was refused for now is asked again, by itself.
        while !keys.is_empty() {
            let keyed = |key: &String| {
                let mut definition = definition(key);
                definition["idempotency_key"] = json!(key);
                definition
            };
            let body = json!({"workflows": keys.iter().map(keyed).collect::<Vec<_>>()});
            let Some((_, answer)) = client.post("/v1/workflows:batch", &body) else {
                return;
            };
            let items = answer["items"]
                .as_array()
                .unwrap_or_else(|| panic!("{answer}"));
            let mut items = items.iter();
            keys.retain(|key| {
                let item = items.next().unwrap();
                let later = is_for_now(item);
                if !later {
                    shared.created(key, item);
                }
                later
            });
        }
    }
}

/// Whether a part of an answer says "not now".
fn is_for_now(part: &Value) -> bool {
    part["error"]["status"] == 503
}

fn work(client: &mut Client, shared: &Shared) {
    let claim =
        json!({"queues": ["default"], "worker": "w", "limit": 4, "lease": "5s", "wait": "200ms"});
    let mut jobs: Vec<Value> = Vec::new();
    while !client.is_over() {
        if jobs.is_empty() {
            let Some((status, mut answer)) = client.post("/v1/jobs/claim", &claim) else {
                return;
            };
            assert_eq!(status, 200, "{answer}");
            jobs = taken(&mut answer, shared);
            continue;
        }
        // Some workers die with their jobs.
        jobs.retain(|_| fastrand::u16(..1_000) > 3);
        let mut reports: Vec<(Value, Value)> =
            jobs.drain(..).map(|job| (report(&job), job)).collect();
        while !reports.is_empty() {
            let bodies: Vec<&Value> = reports.iter().map(|(report, _)| report).collect();
            let body = json!({"reports": bodies, "claim": claim});
            let Some((status, mut answer)) = client.post("/v1/jobs/report", &body) else {
                return;
            };
            assert_eq!(status, 200, "{answer}");
            jobs.extend(taken(&mut answer, shared));
            let mut answers = answer["reports"].as_array().unwrap().iter();
            reports.retain(|(report, job)| {
                let answer = answers.next().unwrap();
                let later = is_for_now(answer);
                if !later {
                    hear(shared, (report, job), answer);
                }
                later
            });
        }
    }
}

/// The jobs of an answer, which have what their parents returned.
fn taken(answer: &mut Value, shared: &Shared) -> Vec<Value> {
    let Value::Array(jobs) = answer["jobs"].take() else {
        panic!("{answer}")
    };
    for job in &jobs {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (id, name, inputs) = (
            text(&job["workflow_id"]),
            text(&job["job"]),
            job["inputs"].as_array().unwrap(),
        );
        let (_, parents) = AFTER.iter().find(|(known, _)| *known == name).unwrap();
        let given: Vec<&str> = inputs
            .iter()
            .map(|input| input["job"].as_str().unwrap())
            .collect();
        assert_eq!(&given, parents, "{job}");
        for input in inputs {
            assert_eq!(input["output"]["key"], job["params"]["key"], "{job}");
            shared.told(|told| {
                told.inputs
                    .push((id.clone(), text(&input["job"]), input["output"].clone()))
            });
        }
    }
    jobs
}

/// How the job ended: each run returns something of its own.
fn report(job: &Value) -> Value {
    let lease = &job["lease"];
    match fastrand::u8(..20) {
        0 => {
            json!({"lease": lease, "outcome": "failed", "error": {"kind": "Bad", "message": "luck"}})
        }
        1 => json!({"lease": lease, "outcome": "given_back", "pause": "3ms"}),
        _ => {
            let output = json!({"key": job["params"]["key"], "by": lease});
            json!({"lease": lease, "outcome": "succeeded", "output": output})
        }
    }
}

fn hear(shared: &Shared, (report, job): (&Value, &Value), answer: &Value) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (id, name) = (text(&job["workflow_id"]), text(&job["job"]));
    if let Some(code) = answer["error"]["code"].as_str() {
        let gone = shared.loss == Loss::LastMoments && code == "workflow_not_found";
        assert!(code == "lease_lost" || gone, "{answer}");
        return;
    }
    shared.told(|told| {
        if answer["workflow_status"] == "succeeded" {
            told.over.insert(id.clone());
        }
        if report["outcome"] == "succeeded" {
            assert!(
                answer["job_state"] == "succeeded" || shared.loss == Loss::LastMoments,
                "{answer}"
            );
            let before = told.succeeded.insert((id, name), report["output"].clone());
            assert!(
                before.is_none() || shared.loss == Loss::LastMoments,
                "two results were taken: {job}"
            );
        }
    });
}
