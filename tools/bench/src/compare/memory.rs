//! The cost of an idle server, and memory that it releases.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::figures::{Table, mebibytes};
use crate::load::{KeyStream, Load, Shape};
use crate::machine::{Server, Store, Testbed};

const KEYS: u32 = 1_000_000;
const DESCRIPTORS: u16 = 100;

/// Measures a server for `time`, after a third of it: its start is complete by then.
pub(super) async fn idle(program: &Path, time: Duration) -> Result<Table> {
    eprintln!("idle server");
    let testbed = Testbed::start(program, Store::Embedded).await?;
    let process = testbed.server.process();
    sleep(time / 3).await;
    let before = process.cost()?;
    sleep(time).await;
    let spent = (process.cost()? - before).total;
    let mut table = Table::new("idle", &["idle server"]);
    let mut row = table.row(&[&"memory"]);
    row.add("resident MiB", 1, mebibytes(process.resident_bytes()?));
    row.add(
        "core %",
        2,
        100.0 * spent.as_secs_f64() / time.as_secs_f64(),
    );
    Ok(table)
}

/// Measures resident memory before and after a million keys of a limit per second. `delays` are
/// seconds after the last request.
pub(super) async fn million_keys(program: &Path, delays: &[u64]) -> Result<Table> {
    eprintln!("a million keys");
    let testbed = Testbed::start(program, Store::Embedded).await?;
    let process = testbed.server.process();
    let mut table = Table::new("million-keys", &["resident MiB"]);
    let mut row = table.row(&[&"a million keys"]);
    row.add("before", 1, mebibytes(process.resident_bytes()?));
    send_all_keys(&testbed.server).await?;
    let end = Instant::now();
    row.add("at most", 1, mebibytes(process.highest_resident_bytes()?));
    for seconds in delays {
        sleep(Duration::from_secs(*seconds).saturating_sub(end.elapsed())).await;
        let resident = mebibytes(process.resident_bytes()?);
        row.add(&format!("after {seconds} s"), 1, resident);
    }
    Ok(table)
}

/// Sends each key once.
async fn send_all_keys(server: &Server) -> Result<()> {
    let requests = u64::from(KEYS) / u64::from(DESCRIPTORS);
    let shape = Shape::new("second", DESCRIPTORS);
    let load = Load {
        keys: KeyStream::sequence(KEYS),
        requests: Some(requests),
        ..Load::new(server.grpc(), shape, Duration::from_secs(60))
    };
    let ok = load.run(None).await?.calls.answers.ok;
    ensure!(ok == requests, "only {ok} of {requests} requests were OK");
    Ok(())
}
