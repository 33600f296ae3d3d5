//! `tidegate-bench pipelining`: compares the cost of batches of commands with redis-benchmark and a
//! blocking client.
//!
//! redis-benchmark has an option for the number of commands that it sends at once. The engine has
//! none: independent callers share one connection, and their commands are combined.

mod peers;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{Arg, Batch, Client, Stats};
use tokio::task::JoinSet;

use crate::figures::{RowFigures, Table, micros_each};
use crate::machine::pin::{self, Core};
use crate::machine::{Process, thread_time};
use crate::scenario::{RunOptions, Scenario};
use peers::RedisBenchmark;

/// Arguments of the subcommand.
#[derive(Args)]
pub(crate) struct Pipelining {
    /// Commands in one write of redis-benchmark, and callers of the engine.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,8,16,32,64")]
    depths: Vec<u32>,
}

/// Timeout of a call: longer than any turn, so that deadlines do not affect the measurement.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The commands that redis-benchmark knows as `set` and `incr`.
#[derive(Clone, Copy)]
enum RedisCommand {
    Set,
    Incr,
}

/// One turn of the engine.
struct EngineTurn {
    before: ConnectionTotals,
    after: ConnectionTotals,
}

/// Totals at one time.
struct ConnectionTotals {
    at: Instant,
    stats: Stats,
    /// Processor time of the client, with the callers' own.
    client: Duration,
    redis: Duration,
}

impl Scenario for Pipelining {
    fn name(&self) -> &'static str {
        "pipelining"
    }

    async fn measure(&self, options: &RunOptions) -> Result<Vec<Table>> {
        let redis = RedisServer::start().await;
        pin::process(redis.pid(), Core::Servers)?;
        pin::current_thread(Core::Load)?;
        let benchmarks = self.benchmarks(&redis, options.turn)?;
        let many = RedisBenchmark::new(&redis, RedisCommand::Incr, 50, 1).lasting(options.turn)?;
        let mut table = Table::new("pipelining", &["command", "P, callers"]);
        let mut single = Table::new("single", &["INCR, one command in each write"]);
        for _ in options.rounds("pipelining") {
            for benchmark in &benchmarks {
                let RedisBenchmark { command, depth, .. } = *benchmark;
                let mut row = table.row(&[&command.name().to_uppercase(), &depth]);
                row.add("redis-benchmark/s", 0, benchmark.run()?);
                let turn = engine_turn(&redis, command, depth, options.turn).await?;
                turn.add_to(&mut row);
            }
            measure_single(&redis, &many, options.turn / 4, &mut single).await?;
        }
        Ok(vec![table, single])
    }
}

impl Pipelining {
    /// Returns a run of redis-benchmark for each command and depth.
    fn benchmarks(&self, redis: &RedisServer, time: Duration) -> Result<Vec<RedisBenchmark>> {
        let mut benchmarks = Vec::new();
        for command in [RedisCommand::Set, RedisCommand::Incr] {
            for &depth in &self.depths {
                let benchmark = RedisBenchmark::new(redis, command, 1, depth);
                benchmarks.push(benchmark.lasting(time)?);
            }
        }
        Ok(benchmarks)
    }
}

/// Measures short turns in quick succession, because the variants differ by a few per cent.
async fn measure_single(
    redis: &RedisServer,
    many: &RedisBenchmark,
    time: Duration,
    single: &mut Table,
) -> Result<()> {
    let mut add = |name: &str, rate| single.row(&[&name]).add("commands/s", 0, rate);
    add("redis-benchmark, 50 connections", many.run()?);
    for _ in 0..4 {
        let blocking = peers::blocking(redis.port(), time)?;
        add("a client that blocks for each reply", blocking);
        let turn = engine_turn(redis, RedisCommand::Incr, 1, time).await?;
        add("one caller of the engine", turn.per_second());
    }
    Ok(())
}

/// Lets `callers` callers send commands in sequence, each as soon as its last one is answered.
async fn engine_turn(
    redis: &RedisServer,
    command: RedisCommand,
    callers: u32,
    time: Duration,
) -> Result<EngineTurn> {
    let mut config = redis.config();
    config.max_connections = 1;
    let client = Client::new(config)?;
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        tasks.spawn(command.send_while_answered(client.clone()));
    }
    tokio::time::sleep(time / 4).await;
    let before = ConnectionTotals::read(&client, redis)?;
    tokio::time::sleep(time).await;
    let after = ConnectionTotals::read(&client, redis)?;
    ensure!(tasks.try_join_next().is_none(), "a command failed");
    tasks.shutdown().await;
    client.close().await;
    Ok(EngineTurn { before, after })
}

impl RedisCommand {
    fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Incr => "incr",
        }
    }

    async fn send_while_answered(self, client: Client) {
        loop {
            let mut batch = Batch::with_capacity(1, 64);
            let unit = batch.unit();
            match self {
                Self::Set => {
                    unit.command("SET", &[Arg::Key(b"key:__rand_int__"), Arg::Bytes(b"VXK")])
                }
                Self::Incr => unit.command("INCR", &[Arg::Key(b"counter:__rand_int__")]),
            };
            let outcomes = client.send(batch, Instant::now() + CALL_TIMEOUT).await;
            if outcomes[0].reply().is_err() {
                return;
            }
        }
    }
}

impl ConnectionTotals {
    /// Reads the totals. All tasks of the client run on this thread.
    fn read(client: &Client, redis: &RedisServer) -> Result<Self> {
        Ok(Self {
            redis: Process(redis.pid()).main_thread_time()?,
            at: Instant::now(),
            stats: client.stats(),
            client: thread_time(),
        })
    }
}

impl EngineTurn {
    fn commands(&self) -> u64 {
        self.after.stats.replies - self.before.stats.replies
    }

    fn per_second(&self) -> f64 {
        self.commands() as f64 / (self.after.at - self.before.at).as_secs_f64()
    }

    fn add_to(&self, row: &mut RowFigures<'_>) {
        let Self { before, after } = self;
        row.add("engine/s", 0, self.per_second());
        let commands = self.commands();
        let writes = (after.stats.writes - before.stats.writes) as f64;
        row.add("commands/write", 1, commands as f64 / writes);
        // Reads and writes; waiting for the socket is not counted.
        let socket_calls = writes + (after.stats.reads - before.stats.reads) as f64;
        row.add("socket calls/command", 3, socket_calls / commands as f64);
        let client = micros_each(after.client - before.client, commands);
        row.add("client CPU us/command", 2, client);
        let redis = micros_each(after.redis - before.redis, commands);
        row.add("Redis CPU us/command", 2, redis);
    }
}
