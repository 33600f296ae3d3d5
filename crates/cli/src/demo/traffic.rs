//! Calls of a gateway: a few users send many requests, and most users send few.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::post;
use crate::client::api_client::ApiClient;

/// Interval between two calls.
const CALL_INTERVAL: Duration = Duration::from_millis(25);
/// Number of calls from one call of the partner's API to the next. Jobs call this API as well.
const CALLS_PER_PARTNER_CALL: u64 = 40;

pub(super) async fn run(gateway: &ApiClient) {
    let mut ticks = interval(CALL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        ticks.tick().await;
        // Refusals are expected, and a lost answer needs no handling.
        let _ = post(gateway, "/json", &call(number)).await;
    }
}

/// An override with a reason, so that the page has one to show.
pub(super) fn pause_of_a_user() -> Value {
    json!({
        "domain": "shop", "entries": [["user", "user-40"]], "pause": true, "gateway": true,
        "for": "24h", "reason": "reported for abuse",
    })
}

fn call(number: u64) -> Value {
    if number.is_multiple_of(CALLS_PER_PARTNER_CALL) {
        return json!({"domain": "partner", "descriptors": [descriptor(&[("client", "crawler")])]});
    }
    let user = format!("user-{}", skewed_random(60));
    let route = if fastrand::u8(..10) == 0 {
        "/checkout"
    } else {
        "/search"
    };
    let plan = if fastrand::u8(..3) == 0 {
        "pro"
    } else {
        "free"
    };
    let key = format!("{plan}-{}", skewed_random(12));
    let descriptors = [
        descriptor(&[("route", route)]),
        descriptor(&[("user", &user)]),
        descriptor(&[("plan", plan), ("api_key", &key)]),
    ];
    json!({"domain": "shop", "descriptors": descriptors})
}

/// A random number below `end`. Small numbers are frequent.
fn skewed_random(end: u32) -> u32 {
    let part = fastrand::f64();
    (part * part * f64::from(end)) as u32
}

fn descriptor(entries: &[(&str, &str)]) -> Value {
    let entries: Vec<_> = entries
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    json!({"entries": entries})
}
