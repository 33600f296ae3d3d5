//! The cost of a span of time for a server and its store.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::process::{Cost, Process};
use super::testbed::Testbed;
use crate::figures::{RowFigures, micros_each};

/// Reads the cost since its start, or since the last reading.
pub(crate) struct Meter<'a> {
    testbed: &'a Testbed,
    since: TestbedTotals,
}

/// Totals since the start of the processes.
struct TestbedTotals {
    at: Instant,
    server: Cost,
    /// Processor time of the main thread, which runs all commands.
    redis: Option<Duration>,
    /// Commands, reads and bytes of Redis.
    counts: Option<[u64; 3]>,
}

/// The cost between two readings.
pub(crate) struct MeasuredCost {
    pub(crate) elapsed: Duration,
    pub(crate) server: Cost,
    /// Processor time of the main thread of Redis. This and the following are `None` without Redis.
    pub(crate) redis: Option<Duration>,
    pub(crate) commands: Option<u64>,
    /// Reads of sockets: each is the round trip of a client.
    pub(crate) reads: Option<u64>,
    /// Growth of the memory of Redis.
    pub(crate) bytes: Option<u64>,
}

impl<'a> Meter<'a> {
    pub(crate) fn start(testbed: &'a Testbed) -> Result<Self> {
        let counts = counts(testbed);
        let mut since = TestbedTotals::read(testbed)?;
        // The counts are read first, so that the time which Redis takes for them is not measured.
        since.counts = counts;
        Ok(Self { testbed, since })
    }

    pub(crate) fn read(&mut self) -> Result<MeasuredCost> {
        let mut now = TestbedTotals::read(self.testbed)?;
        now.counts = counts(self.testbed);
        let since = &self.since;
        let grown = |at: usize| Some(now.counts?[at].saturating_sub(since.counts?[at]));
        let spent = MeasuredCost {
            elapsed: now.at - since.at,
            server: now.server - since.server,
            redis: now
                .redis
                .zip(since.redis)
                .map(|(now, since)| now.saturating_sub(since)),
            commands: grown(0),
            // One of the reads is that of INFO itself.
            reads: grown(1).map(|reads| reads.saturating_sub(1)),
            bytes: grown(2),
        };
        self.since = now;
        Ok(spent)
    }
}

impl MeasuredCost {
    /// Adds the processor time of each of `count` units to a row.
    pub(crate) fn add_to(&self, row: &mut RowFigures<'_>, unit: &str, count: u64) {
        let server = micros_each(self.server.total, count);
        row.add(&format!("server CPU, us/{unit}"), 1, server);
        let redis = self.redis.map(|redis| micros_each(redis, count));
        row.add(&format!("Redis CPU, us/{unit}"), 1, redis);
    }

    /// Adds the commands of Redis for each of `count` units to a row.
    pub(crate) fn add_commands_to(&self, row: &mut RowFigures<'_>, unit: &str, count: u64) {
        let commands = self.commands.map(|commands| commands as f64 / count as f64);
        row.add(&format!("Redis commands/{unit}"), 2, commands);
    }
}

impl TestbedTotals {
    /// Reads all totals except the counts.
    fn read(testbed: &Testbed) -> Result<Self> {
        let redis = testbed.redis();
        let time = redis.map(|redis| Process(redis.pid()).main_thread_time());
        Ok(Self {
            at: Instant::now(),
            server: testbed.server.process().cost()?,
            redis: time.transpose()?,
            counts: None,
        })
    }
}

fn counts(testbed: &Testbed) -> Option<[u64; 3]> {
    let text = testbed.redis()?.raw("INFO all");
    let names = [
        "total_commands_processed",
        "total_reads_processed",
        "used_memory",
    ];
    Some(names.map(|name| info(&text, name)))
}

/// Returns a number in the text of INFO. Zero if it is missing.
pub(crate) fn info(text: &str, name: &str) -> u64 {
    let value = |line: &str| {
        line.strip_prefix(name)?
            .strip_prefix(':')?
            .trim()
            .parse()
            .ok()
    };
    text.lines().find_map(value).unwrap_or(0)
}
