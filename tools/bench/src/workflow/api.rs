//! The HTTP API as a client sees it: one connection, one request at a time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpStream;

/// A connection that is kept open.
pub(crate) struct Api {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

/// Jobs that a worker got.
#[derive(Deserialize)]
pub(crate) struct Work<'a> {
    #[serde(borrow)]
    pub(crate) jobs: Vec<Job<'a>>,
}

/// What a worker without work of its own needs of a job.
#[derive(Deserialize)]
pub(crate) struct Job<'a> {
    pub(crate) lease: &'a str,
}

impl Api {
    /// Connects as soon as the API is open, which it is later than the gRPC port. The task that drives the connection ends with it.
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        const LONGEST: Duration = Duration::from_secs(20);
        let start = Instant::now();
        let stream = loop {
            match TcpStream::connect(address).await {
                Ok(stream) => break stream,
                Err(error) => ensure!(
                    start.elapsed() < LONGEST,
                    "the API did not open within {LONGEST:?}: {error}"
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

    /// Sends a request and returns the body of its answer. Fails when the status is not a success.
    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        // Its task may not have seen the end of the last answer yet.
        self.sender
            .ready()
            .await
            .with_context(|| format!("the connection for {path} is closed"))?;
        let response = self
            .sender
            .send_request(request)
            .await
            .with_context(|| format!("{path} was not answered"))?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        let is_fine = status.is_success() || status == StatusCode::NO_CONTENT;
        ensure!(
            is_fine,
            "{path}: {status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(body)
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Bytes> {
        self.call(Method::GET, path, String::new()).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: String) -> anyhow::Result<Bytes> {
        self.call(Method::POST, path, body).await
    }

    /// As [`Api::get`], read as JSON.
    pub(crate) async fn json(&mut self, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&self.get(path).await?)?)
    }
}

/// The body of a report on jobs that all succeeded, with a wish for as many others.
pub(crate) fn report(work: &Work<'_>, wish: &str) -> String {
    let mut body = String::with_capacity(64 + work.jobs.len() * 96);
    body.push_str("{\"reports\":[");
    for (at, job) in work.jobs.iter().enumerate() {
        if at > 0 {
            body.push(',');
        }
        body.push_str("{\"lease\":\"");
        body.push_str(job.lease);
        body.push_str("\",\"outcome\":\"succeeded\"}");
    }
    body.push_str("],\"claim\":");
    body.push_str(wish);
    body.push('}');
    body
}
