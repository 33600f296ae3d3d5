//! Callers that share one connection of the engine.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{Arg, Batch, Client, Stats};
use tokio::task::JoinSet;

use super::kind::Kind;
use crate::figures::{Turns, per_call};
use crate::machine::{Process, thread_time};

/// Longer than any turn: what is measured is the engine and not its deadlines.
const DEADLINE: Duration = Duration::from_secs(60);

/// What one turn showed.
#[derive(Serialize, Deserialize)]
pub(super) struct EngineTurn {
    pub(super) commands_per_second: f64,
    pub(super) commands_per_write: f64,
    /// Reads and writes; waiting for the socket is not counted.
    pub(super) socket_calls_per_command: f64,
    /// Processor time of the client for each command, with the callers' own.
    pub(super) client_us_per_command: f64,
    pub(super) redis_us_per_command: f64,
}

/// Totals at a moment.
struct Moment {
    at: Instant,
    stats: Stats,
    client: Duration,
    redis: Duration,
}

/// Lets `callers` callers send one command after the other, each as soon as its last one is answered.
pub(super) async fn turn(
    redis: &RedisServer,
    kind: Kind,
    callers: u32,
    turns: &Turns,
) -> anyhow::Result<EngineTurn> {
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
    Ok(EngineTurn::between(&before, &after))
}

/// Sends for as long as commands succeed.
async fn call(client: Client, kind: Kind) {
    loop {
        let mut batch = Batch::with_capacity(1, 64);
        match kind {
            Kind::Set => batch
                .unit()
                .command("SET", &[Arg::Key(b"key:__rand_int__"), Arg::Bytes(b"VXK")]),
            Kind::Incr => batch
                .unit()
                .command("INCR", &[Arg::Key(b"counter:__rand_int__")]),
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
        Ok(Self {
            at: Instant::now(),
            stats: client.stats(),
            client: thread_time(),
            redis,
        })
    }
}

impl EngineTurn {
    fn between(before: &Moment, after: &Moment) -> Self {
        let (from, to) = (&before.stats, &after.stats);
        let (commands, writes, reads) = (
            to.replies - from.replies,
            to.writes - from.writes,
            to.reads - from.reads,
        );
        Self {
            commands_per_second: commands as f64 / (after.at - before.at).as_secs_f64(),
            commands_per_write: commands as f64 / writes.max(1) as f64,
            socket_calls_per_command: (writes + reads) as f64 / commands.max(1) as f64,
            client_us_per_command: per_call(after.client - before.client, commands),
            redis_us_per_command: per_call(after.redis - before.redis, commands),
        }
    }
}
