//! Callers that share one connection of the engine.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};
use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{Arg, Batch, Client, Stats};
use tokio::task::JoinSet;

use super::Kind;
use crate::figures::Turns;
use crate::figures::per_call;
use crate::machine::{Process, thread_time};

/// Longer than any turn: what is measured is the engine and not its deadlines.
const DEADLINE: Duration = Duration::from_secs(60);

/// What one turn showed.
pub(super) struct EngineTurn {
    elapsed: Duration,
    commands: u64,
    writes: u64,
    reads: u64,
    client: Duration,
    redis: Duration,
}

/// Totals at a moment.
struct Moment {
    at: Instant,
    stats: Stats,
    client: Duration,
    redis: Duration,
}

/// Lets `callers` callers send one command after the other, each as soon as its last one is answered.
pub(super) async fn turn(redis: &RedisServer, kind: Kind, callers: u32, turns: &Turns) -> anyhow::Result<EngineTurn> {
    let mut config = redis.config();
    config.max_connections = 1;
    let client = Client::new(config)?;
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        tasks.spawn(call(client.clone(), kind));
    }
    tokio::time::sleep(turns.warmup()).await;
    let before = Moment::now(&client, redis)?;
    tokio::time::sleep(turns.turn).await;
    let after = Moment::now(&client, redis)?;
    ensure!(tasks.try_join_next().is_none(), "a command failed");
    tasks.shutdown().await;
    client.close().await;
    Ok(EngineTurn {
        elapsed: after.at - before.at,
        commands: after.stats.replies - before.stats.replies,
        writes: after.stats.writes - before.stats.writes,
        reads: after.stats.reads - before.stats.reads,
        client: after.client - before.client,
        redis: after.redis - before.redis,
    })
}

/// Sends for as long as commands succeed.
async fn call(client: Client, kind: Kind) {
    loop {
        let mut batch = Batch::with_capacity(1, 64);
        match kind {
            Kind::Set => batch.unit().command("SET", &[Arg::Key(b"key:__rand_int__"), Arg::Bytes(b"VXK")]),
            Kind::Incr => batch.unit().command("INCR", &[Arg::Key(b"counter:__rand_int__")]),
        };
        let outcomes = client.send(batch, Instant::now() + DEADLINE).await;
        if outcomes[0].reply().is_err() {
            return;
        }
    }
}

impl Moment {
    fn now(client: &Client, redis: &RedisServer) -> anyhow::Result<Self> {
        let redis = Process(redis.pid()).main_thread_time()?;
        // Everything of the client runs on this thread.
        Ok(Self { at: Instant::now(), stats: client.stats(), client: thread_time(), redis })
    }
}

impl EngineTurn {
    pub(super) fn per_second(&self) -> f64 {
        self.commands as f64 / self.elapsed.as_secs_f64()
    }

    pub(super) fn commands_per_write(&self) -> f64 {
        self.commands as f64 / self.writes.max(1) as f64
    }

    /// Reads and writes; waiting for the socket is not counted.
    pub(super) fn socket_calls_per_command(&self) -> f64 {
        (self.writes + self.reads) as f64 / self.commands.max(1) as f64
    }

    /// Processor time of the client for each command, with the callers' own.
    pub(super) fn client_us(&self) -> f64 {
        per_call(self.client, self.commands)
    }

    pub(super) fn redis_us(&self) -> f64 {
        per_call(self.redis, self.commands)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "commands_per_second": self.per_second(),
            "commands_per_write": self.commands_per_write(),
            "socket_calls_per_command": self.socket_calls_per_command(),
            "client_us_per_command": self.client_us(),
            "redis_us_per_command": self.redis_us(),
        })
    }
}
