//! Moments in microseconds since the epoch, by the clock of this machine, which is that of its servers and its Redis.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

#[expect(
    clippy::disallowed_methods,
    reason = "windows and leases follow the clock of the machine"
)]
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_micros() as u64
}

/// When a moment is that an answer names, as in `2026-11-21T12:05:00.000000Z`. It is less than half a day away.
pub(super) fn told(moment: &Value) -> u64 {
    const DAY: u64 = 86_400_000_000;
    let time = moment
        .as_str()
        .and_then(|told| told.strip_suffix('Z')?.split_once('T'))
        .expect("it is a moment")
        .1;
    let seconds = time
        .split(':')
        .fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap());
    let now = now();
    let ahead = ((seconds * 1e6).round() as u64 + DAY + DAY / 2 - now % DAY) % DAY;
    now + ahead - DAY / 2
}
