//! What a client may do: everything that the API has.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::ledger::as_sent;
use super::person::{LEASE, Person, QUEUES};

impl Person {
    pub(super) fn do_something(&mut self) {
        match self.rng.u8(..100) {
            0..=13 => self.create(),
            14..=34 => self.claim_jobs(),
            35..=74 => self.report_jobs(),
            75..=79 => self.extend(),
            80..=84 => self.look(),
            85..=90 => self.act_on_workflow(),
            91..=96 => self.act_on_job(),
            97 | 98 => self.act_on_queue(),
            // It waits until its leases end.
            _ => std::thread::park_timeout(Duration::from_millis(self.rng.u64(..1_500))),
        }
    }

    fn definition(&mut self) -> Value {
        let rng = &mut self.rng;
        let size = rng.usize(1..9);
        let jobs: Vec<Value> = (0..size)
            .map(|at| {
                let after: Vec<String> =
                    (0..if at == 0 { 0 } else { rng.usize(..3) }).map(|_| format!("j{}", rng.usize(..at))).collect();
                let rules = ["all_success", "all_success", "all_success", "all_done", "any_success", "none_failed"];
                json!({
                    "name": format!("j{at}"), "handler": "h", "queue": QUEUES[rng.usize(..QUEUES.len())],
                    "after": after, "rule": rules[rng.usize(..rules.len())], "priority": rng.u8(..3),
                    "retries": 5, "backoff": "10ms", "backoff_max": "50ms",
                    "wait": if rng.u8(..5) == 0 { "30ms" } else { "0s" },
                })
            })
            .collect();
        let on_failure = if rng.u8(..4) == 0 {
            "fail_fast"
        } else {
            "continue"
        };
        let start = if rng.u8(..10) == 0 { "manual" } else { "now" };
        json!({"name": format!("n{}", rng.u8(..3)), "jobs": jobs, "on_failure": on_failure, "start": start})
    }

    fn create(&mut self) {
        self.made += 1;
        let key = format!("{}-{}", self.number, self.made);
        if self.rng.u8(..4) == 0 {
            let many: Vec<Value> = (0..self.rng.usize(1..6))
                .map(|_| self.definition())
                .collect();
            let header = format!("idempotency-key: {key}\r\n");
            let body = json!({"workflows": many});
            // Whoever hears nothing says it again.
            let answer =
                (0..3).find_map(|_| self.ask("POST", "/v1/workflows:batch", &header, &body));
            let Some((status, answer)) = answer else {
                return;
            };
            assert_eq!(status, 200, "{answer}");
            for (definition, item) in many.iter().zip(answer["items"].as_array().unwrap()) {
                self.know(definition, item);
            }
            return;
        }
        let definition = self.definition();
        let header = if self.rng.bool() {
            format!("idempotency-key: {key}\r\n")
        } else {
            String::new()
        };
        let attempts = if header.is_empty() { 1 } else { 3 };
        let answer =
            (0..attempts).find_map(|_| self.ask("POST", "/v1/workflows", &header, &definition));
        if let Some((status, answer)) = answer {
            assert!(matches!(status, 200 | 201), "{status} {answer}");
            self.know(&definition, &answer);
        }
    }

    fn know(&mut self, definition: &Value, answer: &Value) {
        let Some(id) = answer["id"].as_str() else {
            return;
        };
        self.ledger.create(id);
        let jobs = definition["jobs"].as_array().unwrap();
        let names = jobs
            .iter()
            .map(|job| job["name"].as_str().unwrap().to_owned())
            .collect();
        self.workflows.push((id.to_owned(), names));
    }

    fn claim_jobs(&mut self) {
        let (claim, asked) = (self.claim(), Instant::now());
        if let Some((status, answer)) = self.ask("POST", "/v1/jobs/claim", "", &claim) {
            assert_eq!(status, 200, "{answer}");
            self.take(&answer, asked);
        }
    }

    /// Reports of some of its jobs, some of which it no longer has.
    fn report_jobs(&mut self) {
        let number = [1, 1, 1, 3, 10][self.rng.usize(..5)];
        let mut reports = Vec::new();
        for _ in 0..number {
            let Some(job) = self.some_job() else { break };
            if !reports
                .iter()
                .any(|report: &Value| report["lease"] == job["lease"])
            {
                reports.push(self.report(&job));
            }
        }
        if reports.is_empty() {
            return self.claim_jobs();
        }
        let claim = if self.rng.bool() {
            self.claim()
        } else {
            Value::Null
        };
        let asked = Instant::now();
        let body = json!({"reports": as_sent(&reports), "claim": claim});
        let times = if self.rng.u8(..6) == 0 { 2 } else { 1 };
        for _ in 0..times {
            if let Some((status, answer)) = self.ask("POST", "/v1/jobs/report", "", &body) {
                assert_eq!(status, 200, "{answer}");
                self.ledger.accept(&reports, &answer);
                self.take(&answer, asked);
            }
        }
        if self.rng.u8(..4) > 0 {
            self.jobs
                .retain(|job| !reports.iter().any(|report| report["lease"] == job["lease"]));
        }
    }

    fn report(&mut self, job: &Value) -> Value {
        let lease = job["lease"].as_str().unwrap();
        match self.rng.u8(..10) {
            0..=6 => return self.ledger.success(job, &self.number.to_string()),
            7 | 8 => {}
            _ => {
                self.ledger.report(lease);
                let pause = ["0s", "200ms"][self.rng.usize(..2)];
                return json!({"lease": lease, "outcome": "given_back", "pause": pause});
            }
        }
        self.ledger.report(lease);
        let mut report =
            json!({"lease": lease, "outcome": "failed", "error": {"kind": "E", "message": "m"}});
        match self.rng.u8(..6) {
            0 => report["retry"] = json!("never"),
            1 => report["retry_after"] = json!("20ms"),
            _ => {}
        }
        report
    }

    fn extend(&mut self) {
        let Some(job) = self.some_job() else { return };
        let lease = job["lease"].as_str().unwrap();
        let body = json!({"leases": [lease], "lease": LEASE});
        if let Some((status, answer)) = self.ask("POST", "/v1/jobs/extend", "", &body) {
            assert_eq!(status, 200, "{answer}");
            if answer["leases"][0]["status"] == 200 {
                self.ledger.extend(lease, &answer["leases"][0]);
            }
        }
    }

    fn look(&mut self) {
        let id = self.some_workflow().map_or_else(String::new, |(id, _)| id);
        let paths = [
            "/v1/workflows?limit=5".to_owned(),
            "/v1/workflows:count?by=name".to_owned(),
            "/v1/queues".to_owned(),
            format!("/v1/workflows/{id}?view=full"),
            format!("/v1/workflows/{id}/jobs"),
            format!("/v1/workflows/{id}/graph.txt"),
            format!("/v1/workflows:byKey?key={}-{}", self.number, self.made),
        ];
        let until = if id.is_empty() { 3 } else { paths.len() };
        let path = &paths[self.rng.usize(..until)];
        if !path.ends_with("txt") {
            let _answer = self.ask("GET", path, "", &Value::Null);
        }
    }

    fn some_workflow(&mut self) -> Option<(String, Vec<String>)> {
        (!self.workflows.is_empty())
            .then(|| self.workflows[self.rng.usize(..self.workflows.len())].clone())
    }

    /// Only half of the workflows are for operators: in the others nothing is excused.
    fn some_workflow_to_operate(&mut self) -> Option<(String, Vec<String>)> {
        self.some_workflow()
            .filter(|(id, _)| id.bytes().fold(0_u32, |sum, byte| sum + u32::from(byte)) % 2 == 0)
    }

    fn operate(&mut self, id: &str, method: &str, path: &str, body: &Value) {
        self.ledger.touch(id);
        let _answer = self.ask(method, path, "", body);
    }

    fn act_on_workflow(&mut self) {
        let Some((id, names)) = self.some_workflow_to_operate() else {
            return;
        };
        let path = |action: &str| format!("/v1/workflows/{id}:{action}");
        match self.rng.u8(..12) {
            0 => self.operate(&id, "POST", &path("start"), &Value::Null),
            1 => self.operate(&id, "POST", &path("cancel"), &Value::Null),
            2 => self.operate(&id, "POST", &path("pause"), &Value::Null),
            3 | 4 => self.operate(&id, "POST", &path("resume"), &Value::Null),
            5 | 6 => self.operate(&id, "POST", &path("retry"), &Value::Null),
            7 | 8 => {
                let body = json!({"jobs": [names[self.rng.usize(..names.len())]], "cascade": self.rng.bool()});
                self.operate(&id, "POST", &path("restart"), &body);
            }
            9 => {
                self.ledger.remove(&id);
                let after = ["1s", "90d"][self.rng.usize(..2)];
                self.operate(&id, "POST", &path("expire"), &json!({"after": after}));
            }
            10 => {
                self.ledger.remove(&id);
                self.operate(&id, "DELETE", &format!("/v1/workflows/{id}"), &Value::Null);
            }
            _ => self.act_on_many(),
        }
    }

    /// Creations of one name are paused and resumed, which takes no job from anybody.
    fn act_on_many(&mut self) {
        for action in ["pause", "resume"] {
            let body = json!({"action": action, "filter": {"name": "n0"}, "limit": 50});
            let _answer = self.ask("POST", "/v1/workflows:bulk", "", &body);
        }
    }

    fn act_on_job(&mut self) {
        let Some((id, names)) = self.some_workflow_to_operate() else {
            return;
        };
        let name = &names[self.rng.usize(..names.len())];
        let path = |action: &str| format!("/v1/workflows/{id}/jobs/{name}:{action}");
        match self.rng.u8(..4) {
            0 => self.operate(&id, "POST", &path("skip"), &Value::Null),
            1 => self.operate(&id, "POST", &path("cancel"), &Value::Null),
            2 => self.operate(&id, "POST", &path("retry"), &Value::Null),
            _ => {
                let output = format!("mark-{}-{}", self.number, self.rng.u64(..));
                self.ledger.mark(&id, name, &output);
                self.operate(
                    &id,
                    "POST",
                    &path("mark_succeeded"),
                    &json!({"output": output}),
                );
            }
        }
    }

    fn act_on_queue(&mut self) {
        let queue = QUEUES[self.rng.usize(..QUEUES.len())];
        for action in ["pause", "resume"] {
            let _answer = self.ask(
                "POST",
                &format!("/v1/queues/{queue}:{action}"),
                "",
                &Value::Null,
            );
        }
    }
}
