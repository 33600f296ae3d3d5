//! Clients to compare with: redis-benchmark, and one that waits for each reply.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use tidegate_pipeline::test_util::RedisServer;

use super::RedisCommand;
use crate::machine::printed;

/// A run of redis-benchmark.
pub(super) struct RedisBenchmark {
    port: u16,
    pub(super) command: RedisCommand,
    clients: u32,
    /// Commands of each write.
    pub(super) depth: u32,
    requests: u64,
}

impl RedisBenchmark {
    /// A short run.
    pub(super) fn new(
        redis: &RedisServer,
        command: RedisCommand,
        clients: u32,
        depth: u32,
    ) -> Self {
        Self {
            port: redis.port(),
            command,
            clients,
            depth,
            requests: 2_000 * u64::from(depth),
        }
    }

    /// Runs once, and sets the number of requests that take this time.
    pub(super) fn lasting(mut self, time: Duration) -> Result<Self> {
        self.requests = (self.run()? * time.as_secs_f64()) as u64;
        Ok(self)
    }

    /// Runs it and returns the commands a second.
    pub(super) fn run(&self) -> Result<f64> {
        let numbers = [
            ("-p", u64::from(self.port)),
            ("-c", u64::from(self.clients)),
            ("-P", u64::from(self.depth)),
            ("-n", self.requests),
        ];
        let mut command = Command::new("redis-benchmark");
        command.args(["-h", "127.0.0.1", "-t", self.command.name(), "--csv"]);
        for (option, number) in numbers {
            command.arg(option).arg(number.to_string());
        }
        read(&printed(&mut command)?, self.command)
    }
}

/// Parses the rate in the output of redis-benchmark.
fn read(text: &str, command: RedisCommand) -> Result<f64> {
    let name = command.name().to_uppercase();
    let start = format!("\"{name}\",\"");
    let rate = |line: &str| line.strip_prefix(&start)?.split('"').next()?.parse().ok();
    text.lines()
        .find_map(rate)
        .with_context(|| format!("redis-benchmark printed no rate of {name}:\n{text}"))
}

/// Sends INCR commands in sequence, each after the last reply, with plain blocking calls. Returns
/// the commands a second.
pub(super) fn blocking(port: u16, time: Duration) -> Result<f64> {
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
        assert_eq!(read(printed, RedisCommand::Set).unwrap(), 52_083.33);
        assert_eq!(read(printed, RedisCommand::Incr).unwrap(), 60_000.5);
        assert!(read("", RedisCommand::Set).is_err());
    }
}
