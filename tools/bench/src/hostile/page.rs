//! Pages of the debug port.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;

use super::calls::Caller;
use super::connections;
use super::flood;
use super::target::Target;

/// The body of a page.
pub(super) fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.write_all(request(path).as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (_, body) = text
        .split_once("\r\n\r\n")
        .context("the page has no body")?;
    Ok(body.to_owned())
}

/// Ten thousand names in metrics, made of what callers send.
pub(super) async fn make_names(target: &Target) -> io::Result<()> {
    let mut caller = Caller::connect(target.grpc).await?;
    for batch in 0..10 {
        caller
            .call(flood::request("named", "value", batch, 1))
            .await?;
    }
    Ok(())
}

/// Reads all metrics once a second.
pub(super) async fn scrape(target: &Target) -> io::Result<()> {
    loop {
        let begun = Instant::now();
        let mut stream = connections::connect(target.debug).await?;
        stream.write_all(request("/metrics").as_bytes()).await?;
        let mut page = Vec::new();
        stream.read_to_end(&mut page).await?;
        target.gains.answered(
            &format!("pages of {} kB", page.len() / 1_000),
            begun.elapsed(),
        );
        sleep(Duration::from_secs(1)).await;
    }
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}
