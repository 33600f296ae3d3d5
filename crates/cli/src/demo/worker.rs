//! A worker of the demo: it runs one job after another, writes to its log, and sleeps instead of
//! working.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{PAUSE, post};
use crate::client::remote::Remote;

/// Number of orders for one whose card the bank declines.
const DECLINED: u64 = 25;
/// Number of orders for one whose bank does not answer in the first attempt.
const BUSY: u64 = 9;

#[derive(Debug, Deserialize)]
struct Claimed {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    lease: String,
    job: String,
    handler: String,
    attempt: u64,
    params: Params,
}

#[derive(Debug, Deserialize)]
struct Params {
    #[serde(default)]
    order: u64,
}

pub(super) async fn run(api: &Remote, name: &str) {
    let claim = json!({
        "queues": ["default", "crawl", "reports"], "worker": name, "limit": 1, "lease": "30s", "wait": "20s",
    });
    loop {
        let answer = post(api, "/v1/jobs/claim", &claim).await;
        let Some(claimed) = answer.and_then(|text| serde_json::from_str::<Claimed>(&text).ok())
        else {
            sleep(PAUSE).await;
            continue;
        };
        for job in claimed.jobs {
            work(api, name, &job).await;
        }
    }
}

async fn work(api: &Remote, name: &str, job: &Job) {
    let half = time(&job.handler) / 2;
    sleep(half).await;
    let begun = json!({
        "leases": [job.lease], "lease": "30s", "worker": name,
        "notes": [{"lease": job.lease, "progress": {"percent": 50}, "log": [format!("{}: attempt {}", job.job, job.attempt)]}],
    });
    let _ = post(api, "/v1/jobs/extend", &begun).await;
    sleep(half).await;
    let mut report = ended(job);
    report["lease"] = json!(job.lease);
    let report = json!({
        "reports": [report], "notes": [{"lease": job.lease, "log": [format!("{} has ended", job.job)]}],
    });
    // A lost report needs no handling: the lease ends, and another worker gets the job.
    let _ = post(api, "/v1/jobs/report", &report).await;
}

/// Random duration of a job.
fn time(handler: &str) -> Duration {
    let milliseconds = match handler {
        "bank.charge" => 300,
        "image.resize" | "report.read" => 400,
        "report.sum" => 1_200,
        "partner.page" => 100,
        _ => 150,
    };
    Duration::from_millis(fastrand::u64(milliseconds / 2..milliseconds * 2))
}

/// Report of a job's outcome.
fn ended(job: &Job) -> Value {
    let failed = |kind: &str, message: &str, retry: &str| json!({"outcome": "failed", "retry": retry, "error": {"kind": kind, "message": message}});
    match (job.handler.as_str(), job.params.order) {
        ("bank.charge", order) if order % DECLINED == DECLINED - 1 => {
            failed("CardDeclined", "the bank declined the card", "never")
        }
        ("bank.charge", order) if order % BUSY == 0 && job.attempt == 1 => failed(
            "BankBusy",
            "the bank did not answer within 300 ms",
            "policy",
        ),
        (handler, _) => json!({"outcome": "succeeded", "output": {"by": handler}}),
    }
}
