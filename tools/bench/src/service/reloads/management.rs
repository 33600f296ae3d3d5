//! A management server: it sends one version of the configuration after the other, each when the one before was acknowledged.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use prost::Message as _;
use prost_types::Any;
use tidegate::discovery::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use tidegate::discovery::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

const TYPE: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";
/// Limits of each version, beside the one of the bench.
const LIMITS: u32 = 100;
/// HOUR.
const UNIT: i32 = 3;
/// In front of each message: whether it is compressed, and its length.
const HEAD: usize = 5;

/// The server, on a thread of its own. It ends when this is dropped.
pub(in crate::service) struct Management {
    pub(in crate::service) address: SocketAddr,
    /// Versions that may be sent.
    wanted: watch::Sender<u64>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

#[derive(Default)]
struct Counts {
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

impl Management {
    /// Starts it. It sends at most one version in each `pause`.
    pub(in crate::service) fn start(pause: Duration) -> anyhow::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no free port")?;
        listener.set_nonblocking(true)?;
        let (address, counts, wanted) = (
            listener.local_addr()?,
            Arc::<Counts>::default(),
            watch::Sender::new(1),
        );
        let sender = Sender {
            pause,
            wanted: wanted.subscribe(),
            counts: counts.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("management".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(sender.accept(listener))
            })?;
        Ok(Self {
            address,
            wanted,
            counts,
            thread: Some(thread),
        })
    }

    /// Allows so many more versions.
    pub(super) fn send(&self, more: u64) {
        self.wanted.send_modify(|wanted| *wanted += more);
    }

    /// How many were acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.counts.acknowledged.load(Relaxed)
    }

    /// How many were refused.
    pub(super) fn refused(&self) -> u64 {
        self.counts.refused.load(Relaxed)
    }
}

impl Drop for Management {
    fn drop(&mut self) {
        // No more than all: the thread knows this as the end.
        self.wanted.send_replace(u64::MAX);
        if let Some(thread) = self.thread.take()
            && let Ok(Err(error)) = thread.join()
        {
            eprintln!("management server: {error:#}");
        }
    }
}

/// What a stream sends.
#[derive(Clone)]
struct Sender {
    pause: Duration,
    wanted: watch::Receiver<u64>,
    counts: Arc<Counts>,
}

impl Sender {
    async fn accept(self, listener: std::net::TcpListener) -> anyhow::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        let mut end = self.wanted.clone();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let sender = self.clone();
                    tokio::spawn(async move {
                        if let Err(error) = sender.connection(accepted?.0).await {
                            eprintln!("management server: {error:#}");
                        }
                        anyhow::Ok(())
                    });
                }
                _ = end.wait_for(|wanted| *wanted == u64::MAX) => return Ok(()),
            }
        }
    }

    async fn connection(self, socket: TcpStream) -> anyhow::Result<()> {
        let mut connection = h2::server::handshake(socket).await?;
        while let Some(stream) = connection.accept().await {
            let (request, respond) = stream?;
            let sender = self.clone();
            tokio::spawn(async move {
                if let Err(error) = sender.stream(request.into_body(), respond).await {
                    eprintln!("management server: {error:#}");
                }
            });
        }
        Ok(())
    }

    async fn stream(
        mut self,
        body: RecvStream,
        mut respond: SendResponse<Bytes>,
    ) -> anyhow::Result<()> {
        let head = http::Response::builder()
            .header("content-type", "application/grpc")
            .body(())?;
        let mut send = respond.send_response(head, false)?;
        let mut requests = Requests {
            body,
            buffer: BytesMut::new(),
        };
        requests.next().await?;
        let mut pace = interval(self.pause);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for version in 1_u64.. {
            let wanted = *self.wanted.wait_for(|wanted| *wanted >= version).await?;
            if wanted == u64::MAX {
                break;
            }
            pace.tick().await;
            put(&mut send, &response(version))?;
            let answer = requests.next().await?;
            let count = if answer.error_detail.is_some() {
                &self.counts.refused
            } else {
                &self.counts.acknowledged
            };
            count.fetch_add(1, Relaxed);
        }
        Ok(())
    }
}

/// The requests of a stream.
struct Requests {
    body: RecvStream,
    buffer: BytesMut,
}

impl Requests {
    async fn next(&mut self) -> anyhow::Result<DiscoveryRequest> {
        loop {
            if let Some(length) = self
                .buffer
                .get(1..HEAD)
                .map(|bytes| bytes.try_into().map(u32::from_be_bytes))
            {
                let length = length? as usize;
                if self.buffer.len() >= HEAD + length {
                    self.buffer.advance(HEAD);
                    return Ok(DiscoveryRequest::decode(self.buffer.split_to(length))?);
                }
            }
            let Some(data) = self.body.data().await else {
                bail!("the client ended the stream")
            };
            let data = data?;
            self.body.flow_control().release_capacity(data.len())?;
            self.buffer.extend_from_slice(&data);
        }
    }
}

fn put(send: &mut SendStream<Bytes>, response: &DiscoveryResponse) -> anyhow::Result<()> {
    let length = response.encoded_len();
    ensure!(length < 1 << 20, "a version is small");
    let mut frame = BytesMut::with_capacity(HEAD + length);
    frame.put_u8(0);
    frame.put_u32(length as u32);
    response.encode(&mut frame)?;
    Ok(send.send_data(frame.freeze(), false)?)
}

/// The configuration of the bench, with limits that differ in each version.
fn response(version: u64) -> DiscoveryResponse {
    let limited = |key: String, requests_per_unit: u32| {
        let limit = RateLimitPolicy {
            unit: UNIT,
            requests_per_unit,
            ..RateLimitPolicy::default()
        };
        RateLimitDescriptor {
            key,
            rate_limit: Some(limit),
            ..RateLimitDescriptor::default()
        }
    };
    let other = |number: u32| limited(format!("other {number}"), version as u32 ^ number);
    let descriptors =
        std::iter::once(limited("key".to_owned(), u32::MAX)).chain((0..LIMITS).map(other));
    let config = RateLimitConfig {
        name: "bench".into(),
        domain: "bench".into(),
        descriptors: descriptors.collect(),
    };
    DiscoveryResponse {
        version_info: version.to_string(),
        resources: vec![Any {
            type_url: TYPE.into(),
            value: config.encode_to_vec(),
        }],
        type_url: TYPE.into(),
        nonce: version.to_string(),
    }
}
