//! A client of the HTTP API: one connection, one request at a time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpStream;

use super::graphs::join_items;

/// Maximum wait until the API is open, which it is later than the gRPC port.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum numbers of workflows and bytes of one request.
const MAX_WORKFLOWS_PER_REQUEST: usize = 1_000;
const MAX_BODY_BYTES: usize = 2_000_000;

/// A connection that is kept open.
pub(crate) struct ApiClient {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

/// The answer to a claim.
pub(crate) struct ClaimedJobs(Bytes);

/// The fields of a job that a no-op worker needs.
#[derive(Deserialize)]
pub(crate) struct Job<'a> {
    pub(crate) lease: &'a str,
    #[serde(default)]
    pub(crate) params: Params,
}

#[derive(Default, Deserialize)]
pub(crate) struct Params {
    /// Due time of the job's creation, in microseconds since the measurement began.
    pub(crate) due: Option<u64>,
}

impl ApiClient {
    /// Connects as soon as the API is open. The task that drives the connection ends with it.
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let start = Instant::now();
        let stream = loop {
            match TcpStream::connect(address).await {
                Ok(stream) => break stream,
                Err(error) => ensure!(
                    start.elapsed() < OPEN_TIMEOUT,
                    "the API did not open within {OPEN_TIMEOUT:?}: {error}"
                ),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self {
            sender,
            host: address.to_string(),
        })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Bytes> {
        self.call(Method::GET, path, String::new()).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: String) -> Result<Bytes> {
        self.call(Method::POST, path, body).await
    }

    /// Requests a path and parses the answer as JSON.
    pub(crate) async fn json(&mut self, path: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&self.get(path).await?)?)
    }

    /// Requests a page of workflows. Fails unless it has a hundred.
    pub(crate) async fn page_of_hundred(&mut self, path: &str) -> Result<()> {
        let page = self.json(path).await?;
        let items = page["items"].as_array().map(Vec::len);
        ensure!(items == Some(100), "not a page of a hundred: {page}");
        Ok(())
    }

    /// Creates workflows with few requests.
    pub(crate) async fn create(
        &mut self,
        workflows: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<()> {
        let mut workflows = workflows.into_iter().peekable();
        while workflows.peek().is_some() {
            let mut body = r#"{"workflows":["#.to_owned();
            for (at, workflow) in workflows.by_ref().enumerate() {
                body.push_str(if at > 0 { "," } else { "" });
                body.push_str(workflow.as_ref());
                if at + 1 == MAX_WORKFLOWS_PER_REQUEST || body.len() > MAX_BODY_BYTES {
                    break;
                }
            }
            body.push_str("]}");
            self.post("/v1/workflows:batch", body).await?;
        }
        Ok(())
    }

    /// Creates one workflow many times, a thousand with each request.
    pub(crate) async fn create_many(&mut self, workflow: &str, count: usize) -> Result<()> {
        self.create(std::iter::repeat_n(workflow, count)).await
    }

    pub(crate) async fn claim(&mut self, claim: &str) -> Result<ClaimedJobs> {
        self.post("/v1/jobs/claim", claim.to_owned())
            .await
            .map(ClaimedJobs)
    }

    /// Reports jobs as done, and claims others in the same request, unless the claim is `null`.
    pub(crate) async fn report(&mut self, jobs: &[Job<'_>], claim: &str) -> Result<ClaimedJobs> {
        let report =
            |Job { lease, .. }: &Job<'_>| format!(r#"{{"lease":"{lease}","outcome":"succeeded"}}"#);
        let reports = join_items(jobs.iter().map(report));
        let body = format!(r#"{{"reports":[{reports}],"claim":{claim}}}"#);
        self.post("/v1/jobs/report", body).await.map(ClaimedJobs)
    }

    /// Fails unless `count` workflows of this name succeeded.
    pub(crate) async fn check_succeeded(&mut self, name: &str, count: usize) -> Result<()> {
        let counts = self
            .json(&format!("/v1/workflows:count?name={name}"))
            .await?;
        ensure!(
            counts["by_status"]["succeeded"] == count,
            "not all workflows succeeded: {counts}"
        );
        Ok(())
    }

    /// Sends a request and returns the body of its answer. Fails if the status is not a success.
    async fn call(&mut self, method: Method, path: &str, body: String) -> Result<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        // The connection's task may not have processed the end of the last answer yet.
        let ready = self.sender.ready().await;
        ready.with_context(|| format!("the connection for {path} is closed"))?;
        let response = self.sender.send_request(request).await;
        let response = response.with_context(|| format!("{path} was not answered"))?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let text = || String::from_utf8_lossy(&body);
        ensure!(status.is_success(), "{path}: {status}: {}", text());
        Ok(body)
    }
}

impl ClaimedJobs {
    pub(crate) fn jobs(&self) -> Result<Vec<Job<'_>>> {
        #[derive(Deserialize)]
        struct ClaimAnswer<'a> {
            #[serde(borrow)]
            jobs: Vec<Job<'a>>,
        }
        let answer: ClaimAnswer<'_> = serde_json::from_slice(&self.0)?;
        Ok(answer.jobs)
    }

    /// Returns the only job. Fails if there are none or several.
    pub(crate) fn job(&self) -> Result<[Job<'_>; 1]> {
        let jobs = <[Job<'_>; 1]>::try_from(self.jobs()?);
        jobs.map_err(|jobs| anyhow::anyhow!("{} jobs instead of one", jobs.len()))
    }
}

/// Returns the body of a claim.
pub(crate) fn claim(queue: &str, worker: usize, limit: usize, wait: &str) -> String {
    format!(r#"{{"queues":["{queue}"],"worker":"w{worker}","limit":{limit},"wait":"{wait}"}}"#)
}
