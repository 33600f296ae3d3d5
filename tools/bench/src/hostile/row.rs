//! What was measured of each attack.

use serde::{Deserialize, Serialize};

use super::target::Got;
use crate::figures::{self, Sheet, Table, Tally, micros};
use crate::load::Measured;

/// The figures of all attacks.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(super) rows: Vec<Row>,
}

/// What one attack did.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) attack: String,
    /// What the attackers got.
    pub(super) got: Got,
    pub(super) before: Felt,
    pub(super) during: Felt,
    pub(super) after: Felt,
    pub(super) resident: Resident,
    /// Hits of healthy callers and of attackers that Redis has; none without Redis.
    pub(super) charged: Option<u64>,
    /// Hits of the same limits in the server's metrics.
    pub(super) counted: u64,
    /// The size of `/metrics` in the end.
    pub(super) metrics_bytes: usize,
}

/// Resident memory of the server, in bytes.
#[derive(Serialize, Deserialize)]
pub(super) struct Resident {
    pub(super) before: u64,
    pub(super) peak: u64,
    pub(super) after: u64,
}

/// What healthy callers felt: microseconds, and calls.
#[derive(Serialize, Deserialize)]
pub(super) struct Felt {
    p50: f64,
    p99: f64,
    p999: f64,
    answered: u64,
    failed: u64,
    /// Calls that were due at the end and had not been sent.
    behind: u64,
}

impl Felt {
    pub(super) fn of(measured: &Measured) -> Self {
        let time = |percent| micros(measured.tally.percentile(percent));
        Self {
            p50: time(50.0),
            p99: time(99.0),
            p999: time(99.9),
            answered: Tally::decisions(&measured.tally),
            failed: measured.tally.failures(),
            behind: measured.behind,
        }
    }
}

impl Row {
    /// A time of healthy callers before, during and after, in milliseconds.
    fn times(&self, time: fn(&Felt) -> f64) -> String {
        let [before, during, after] =
            [&self.before, &self.during, &self.after].map(|felt| time(felt) / 1_000.0);
        format!("{before:.2} / {during:.2} / {after:.2}")
    }

    fn failed(&self) -> u64 {
        self.during.failed + self.during.behind + self.after.failed + self.after.behind
    }
}

impl figures::Results for Results {
    const NAME: &str = "hostile";

    fn tables(&self) -> Vec<Table> {
        let mut felt = Sheet::new(&[
            "attack",
            "p50 ms before / during / after",
            "p99 ms",
            "p99.9 ms",
            "p99 ratio",
            "failed",
        ]);
        let mut held = Sheet::new(&[
            "attack",
            "MB before / peak / after",
            "charged",
            "counted",
            "/metrics kB",
        ]);
        let mut got = Sheet::new(&["attack", "what attackers got", "limits still enforced"]);
        for row in &self.rows {
            let attack = row.attack.clone();
            felt.row(vec![
                attack.clone(),
                row.times(|felt| felt.p50),
                row.times(|felt| felt.p99),
                row.times(|felt| felt.p999),
                format!("{:.2}", row.during.p99 / row.before.p99),
                row.failed().to_string(),
            ]);
            let [before, peak, after] =
                [row.resident.before, row.resident.peak, row.resident.after]
                    .map(|bytes| bytes / 1_000_000);
            held.row(vec![
                attack.clone(),
                format!("{before} / {peak} / {after}"),
                row.charged
                    .map_or_else(|| "-".to_owned(), |hits| hits.to_string()),
                row.counted.to_string(),
                (row.metrics_bytes / 1_000).to_string(),
            ]);
            let enforced = row
                .got
                .enforced_percent
                .map_or_else(|| "-".to_owned(), |share| format!("{share:.1} %"));
            got.row(vec![attack, row.got.to_string(), enforced]);
        }
        vec![
            Table::new("hostile", felt),
            Table::new("hostile-memory", held),
            Table::new("hostile-attackers", got),
        ]
    }
}
