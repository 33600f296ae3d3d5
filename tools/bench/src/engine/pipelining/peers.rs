//! Clients to compare with: redis-benchmark, and one that waits for each reply.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::kind::Kind;

/// A run of redis-benchmark that fills a turn.
pub(super) struct RedisBenchmark {
    port: u16,
    kind: Kind,
    clients: u32,
    depth: u32,
    requests: u64,
}

impl RedisBenchmark {
    /// Finds out how many requests fill a turn.
    pub(super) fn prepare(
        port: u16,
        kind: Kind,
        clients: u32,
        depth: u32,
        turn: Duration,
    ) -> anyhow::Result<Self> {
        let mut benchmark = Self {
            port,
            kind,
            clients,
            depth,
            requests: 2_000 * u64::from(depth),
        };
        let trial = benchmark.run()?;
        benchmark.requests = (trial * turn.as_secs_f64()) as u64;
        Ok(benchmark)
    }

    /// Commands a second.
    pub(super) fn run(&self) -> anyhow::Result<f64> {
        let output = Command::new("redis-benchmark")
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-t",
                self.kind.name(),
                "--csv",
            ])
            .args([
                "-c",
                &self.clients.to_string(),
                "-P",
                &self.depth.to_string(),
                "-n",
                &self.requests.to_string(),
            ])
            .output()
            .context("could not run redis-benchmark; `make bench` installs it")?;
        ensure!(
            output.status.success(),
            "redis-benchmark failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        read(&String::from_utf8_lossy(&output.stdout), self.kind)
    }
}

/// Finds the rate in what redis-benchmark printed.
fn read(text: &str, kind: Kind) -> anyhow::Result<f64> {
    let start = format!("\"{}\",\"", kind.name().to_uppercase());
    let rate = text
        .lines()
        .find_map(|line| line.strip_prefix(&start)?.split('"').next()?.parse().ok());
    rate.with_context(|| {
        format!(
            "redis-benchmark printed no rate of {}:\n{text}",
            kind.name()
        )
    })
}

/// INCR after INCR, each as soon as the last one is answered, with plain blocking calls. Commands a second.
pub(super) fn blocking(port: u16, time: Duration) -> anyhow::Result<f64> {
    const COMMAND: &[u8] = b"*2\r\n$4\r\nINCR\r\n$20\r\ncounter:__rand_int__\r\n";
    let mut socket = TcpStream::connect(("127.0.0.1", port)).context("Redis does not accept")?;
    socket.set_nodelay(true)?;
    let mut reply = [0; 64];
    let (start, mut commands) = (Instant::now(), 0_u64);
    while start.elapsed() < time {
        socket.write_all(COMMAND)?;
        let read = socket.read(&mut reply)?;
        ensure!(
            reply[..read].starts_with(b":") && reply[..read].ends_with(b"\r\n"),
            "INCR was not answered"
        );
        commands += 1;
    }
    Ok(commands as f64 / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_line_of_the_command() {
        let printed = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"52083.33\",\"0.015\"\n\"INCR\",\"60000.50\",\"0.1\"\n";
        assert_eq!(read(printed, Kind::Set).unwrap(), 52_083.33);
        assert_eq!(read(printed, Kind::Incr).unwrap(), 60_000.5);
        assert!(read("", Kind::Set).is_err());
    }
}
