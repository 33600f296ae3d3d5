//! What a server costs that has nothing to do, and whether it gives memory back.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::figures::Sheet;
use crate::load::Load;
use crate::load::Shape;
use crate::load::{Distribution, Keys};
use crate::machine::Server;

const KEYS: u32 = 1_000_000;
const DESCRIPTORS: u16 = 100;

/// An idle server in memory.
#[derive(Serialize, Deserialize)]
pub(super) struct Idle {
    resident_bytes: u64,
    /// Share of one core.
    core_share: f64,
}

/// Resident memory around a million keys of a limit per second.
#[derive(Serialize, Deserialize)]
pub(super) struct MillionKeys {
    before_bytes: u64,
    highest_bytes: u64,
    /// Seconds after the last request, and bytes.
    after_bytes: Vec<(u64, u64)>,
}

impl Idle {
    /// Watches a server for `time`, after a third of it: by then the work of starting is over.
    pub(super) async fn measure(
        program: &Path,
        folder: &Path,
        time: Duration,
    ) -> anyhow::Result<Self> {
        eprintln!("idle server");
        let server = Server::start(program, folder, &[]).await?;
        sleep(time / 3).await;
        let before = server.process().cost()?;
        sleep(time).await;
        let spent = (server.process().cost()? - before).total;
        let core_share = spent.as_secs_f64() / time.as_secs_f64();
        Ok(Self {
            resident_bytes: server.process().resident_bytes()?,
            core_share,
        })
    }

    pub(super) fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new(&["idle server", "resident MiB", "core %"]);
        sheet.row(vec![
            "memory".into(),
            mebibytes(self.resident_bytes),
            format!("{:.2}", self.core_share * 100.0),
        ]);
        sheet
    }
}

impl MillionKeys {
    /// Looks at the memory so many seconds after the last request.
    pub(super) async fn measure(
        program: &Path,
        folder: &Path,
        looks: &[u64],
    ) -> anyhow::Result<Self> {
        eprintln!("a million keys");
        let server = Server::start(program, folder, &[]).await?;
        let before_bytes = server.process().resident_bytes()?;
        send_all_keys(&server).await?;
        let end = Instant::now();
        let highest_bytes = server.process().highest_resident_bytes()?;
        let mut after_bytes = Vec::new();
        for &seconds in looks {
            sleep(Duration::from_secs(seconds).saturating_sub(end.elapsed())).await;
            after_bytes.push((seconds, server.process().resident_bytes()?));
        }
        Ok(Self {
            before_bytes,
            highest_bytes,
            after_bytes,
        })
    }

    pub(super) fn sheet(&self) -> Sheet {
        let mut heads = vec![
            "resident MiB".to_owned(),
            "before".to_owned(),
            "at most".to_owned(),
        ];
        let mut cells = vec![
            "a million keys".to_owned(),
            mebibytes(self.before_bytes),
            mebibytes(self.highest_bytes),
        ];
        for (seconds, bytes) in &self.after_bytes {
            heads.push(format!("after {seconds} s"));
            cells.push(mebibytes(*bytes));
        }
        let mut sheet = Sheet::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
        sheet.row(cells);
        sheet
    }
}

/// Each key once.
async fn send_all_keys(server: &Server) -> anyhow::Result<()> {
    let requests = u64::from(KEYS) / u64::from(DESCRIPTORS);
    let load = Load {
        address: server.grpc(),
        connections: 10,
        streams: 20,
        shape: Shape {
            domain: "bench".into(),
            key: "second".into(),
            descriptors: DESCRIPTORS,
            hits: 0,
        },
        keys: Keys::new(Distribution::Sequence, KEYS, 0.0, 0),
        rate: None,
        requests: Some(requests),
        warmup: Duration::ZERO,
        duration: Duration::from_secs(60),
    };
    let measured = load.run(None).await?;
    ensure!(
        measured.tally.ok == requests,
        "only {} of {requests} requests were OK",
        measured.tally.ok
    );
    Ok(())
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}
