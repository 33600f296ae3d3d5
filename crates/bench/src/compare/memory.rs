//! What a server costs that has nothing to do, and whether it gives memory back.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::load::Load;
use crate::load::Shape;
use crate::load::{Distribution, Keys};
use crate::machine::Server;

/// Start-up work is over long before.
const SETTLE: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(10);
const KEYS: u32 = 1_000_000;
const DESCRIPTORS: u16 = 100;
/// When to look at resident memory, in seconds after the last request.
const LOOKS: [u64; 4] = [2, 5, 10, 30];

/// An idle server in memory.
pub(super) struct Idle {
    resident_bytes: u64,
    /// Share of one core.
    load: f64,
}

/// Resident memory around a million keys of a one-second limit.
pub(super) struct MillionKeys {
    before: u64,
    highest: u64,
    /// Seconds after the last request, and bytes.
    after: Vec<(u64, u64)>,
}

pub(super) async fn idle(program: &Path, folder: &Path) -> anyhow::Result<Idle> {
    eprintln!("idle server");
    let server = Server::start(program, folder, &[]).await?;
    sleep(SETTLE).await;
    let before = server.process().cost()?;
    sleep(IDLE).await;
    let spent = (server.process().cost()? - before).total;
    Ok(Idle { resident_bytes: server.process().resident_bytes()?, load: spent.as_secs_f64() / IDLE.as_secs_f64() })
}

pub(super) async fn million_keys(program: &Path, folder: &Path) -> anyhow::Result<MillionKeys> {
    eprintln!("a million keys");
    let server = Server::start(program, folder, &[]).await?;
    sleep(SETTLE).await;
    let before = server.process().resident_bytes()?;
    let requests = u64::from(KEYS) / u64::from(DESCRIPTORS);
    let load = Load {
        address: server.grpc(),
        connections: 10,
        streams: 20,
        shape: Shape { domain: "bench".into(), key: "second".into(), descriptors: DESCRIPTORS, hits: 0 },
        keys: Keys::new(Distribution::Sequence, KEYS, 0.0, 0),
        rate: None,
        requests: Some(requests),
        warmup: Duration::ZERO,
        duration: Duration::from_secs(60),
    };
    let measured = load.run(Some(server.process())).await?;
    let end = Instant::now();
    ensure!(measured.tally.ok == requests, "only {} of {requests} requests were OK", measured.tally.ok);
    let highest = server.process().highest_resident_bytes()?;
    let mut after = Vec::new();
    for seconds in LOOKS {
        sleep(Duration::from_secs(seconds).saturating_sub(end.elapsed())).await;
        after.push((seconds, server.process().resident_bytes()?));
    }
    Ok(MillionKeys { before, highest, after })
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl Idle {
    pub(super) fn to_json(&self) -> Value {
        json!({ "resident_bytes": self.resident_bytes, "core_share": self.load })
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resident = mebibytes(self.resident_bytes);
        write!(f, "Idle: {resident:.1} MiB resident, {:.2} % of a core.", self.load * 100.0)
    }
}

impl MillionKeys {
    pub(super) fn to_json(&self) -> Value {
        let after: Vec<Value> =
            self.after.iter().map(|(seconds, bytes)| json!({ "seconds": seconds, "resident_bytes": bytes })).collect();
        json!({ "before_bytes": self.before, "highest_bytes": self.highest, "after": after })
    }
}

impl fmt::Display for MillionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, highest) = (mebibytes(self.before), mebibytes(self.highest));
        write!(f, "A million keys of one second: {before:.1} MiB before, {highest:.1} at most")?;
        for (seconds, bytes) in &self.after {
            write!(f, ", {:.1} after {seconds} s", mebibytes(*bytes))?;
        }
        write!(f, ".")
    }
}
