//! Attacks with whole calls, one after the other.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::bomb;
use super::connections;
use super::frames;
use super::target::Target;
use crate::figures::grpc_code;

/// The largest message that a server takes, less what frames it.
const LARGEST: usize = (4 << 20) - 64;

/// A connection for calls.
pub(super) struct Caller {
    sender: SendRequest<Bytes>,
    address: SocketAddr,
    _connection: JoinSet<()>,
}

/// An answer: the name of its gRPC status, and the message.
pub(super) struct Told {
    pub(super) status: &'static str,
    pub(super) message: Vec<u8>,
    pub(super) took: Duration,
}

impl Caller {
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = connections::connect(address).await?;
        let (sender, connection) = h2::client::handshake(socket)
            .await
            .map_err(io::Error::other)?;
        let mut tasks = JoinSet::new();
        // Its error reaches every call.
        tasks.spawn(async move { drop(connection.await) });
        Ok(Self {
            sender,
            address,
            _connection: tasks,
        })
    }

    /// Sends a framed message, and waits for the answer.
    pub(super) async fn call(&mut self, body: Bytes) -> io::Result<Told> {
        let compressed = body.first() == Some(&1);
        let begun = Instant::now();
        let mut request =
            http::Request::post(format!("http://{}{}", self.address, crate::load::PATH))
                .header("content-type", "application/grpc")
                .header("te", "trailers");
        if compressed {
            request = request.header("grpc-encoding", "gzip");
        }
        let request = request.body(()).map_err(io::Error::other)?;
        std::future::poll_fn(|context| self.sender.poll_ready(context))
            .await
            .map_err(io::Error::other)?;
        let (answer, mut stream) = self
            .sender
            .send_request(request, false)
            .map_err(io::Error::other)?;
        stream.send_data(body, true).map_err(io::Error::other)?;
        let (head, mut body) = answer.await.map_err(io::Error::other)?.into_parts();
        let mut message = Vec::new();
        // A server that refuses may reset what it has not read.
        while let Some(Ok(data)) = body.data().await {
            let _ = body.flow_control().release_capacity(data.len());
            message.extend_from_slice(&data);
        }
        let trailers = body.trailers().await.ok().flatten();
        let status = trailers
            .as_ref()
            .unwrap_or(&head.headers)
            .get("grpc-status");
        let code = status.and_then(|code| code.to_str().ok()?.parse().ok());
        Ok(Told {
            status: code.map_or("no status", grpc_code),
            message,
            took: begun.elapsed(),
        })
    }
}

/// The same message again and again, with a pause.
async fn again(target: &Target, body: Bytes, pause: Duration) -> io::Result<()> {
    let mut caller = Caller::connect(target.grpc).await?;
    loop {
        let told = caller.call(body.clone()).await?;
        target.gains.answered(told.status, told.took);
        sleep(pause).await;
    }
}

pub(super) async fn bombs(target: &Target) -> io::Result<()> {
    again(
        target,
        frames::message(true, bomb::gzip()).into(),
        Duration::from_millis(50),
    )
    .await
}

/// Ten requests a second of 4 MiB, with a descriptor of each key in turn.
pub(super) async fn large(target: &Target, keys: &[&'static str]) -> io::Result<()> {
    let each = frames::request("", [(keys[keys.len() - 1], "0000000".to_owned())], 0).len() + 2;
    let descriptors = (0..LARGEST / each).map(|number| {
        (
            keys[number % keys.len()],
            format!("{:07}", number / keys.len()),
        )
    });
    let domain = if keys.len() == 1 { "bench" } else { "hostile" };
    let body = frames::message(false, &frames::request(domain, descriptors, 1));
    again(target, body.into(), Duration::from_millis(100)).await
}

pub(super) async fn unknown_domains(target: &Target) -> io::Result<()> {
    let mut caller = Caller::connect(target.grpc).await?;
    let long = "d".repeat(100_000);
    for number in 0..target.number(10_000) {
        let domain = format!("{number}{long}");
        let request = frames::request(&domain, [("key", "0".to_owned())], 1);
        let told = caller.call(frames::message(false, &request).into()).await?;
        target.gains.answered(told.status, told.took);
    }
    Ok(())
}
