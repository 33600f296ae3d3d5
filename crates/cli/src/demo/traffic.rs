//! Calls of a gateway: a few users send many requests, and most users send few.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::post;
use crate::client::remote::Remote;

/// Interval between two calls.
const BETWEEN: Duration = Duration::from_millis(25);
/// Number of calls from one call of the partner's API to the next. Jobs call this API as well.
const PARTNER: u64 = 40;

pub(super) async fn run(gateway: &Remote) {
    let mut ticks = interval(BETWEEN);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        ticks.tick().await;
        // Refusals are expected, and a lost answer needs no handling.
        let _ = post(gateway, "/json", &call(number)).await;
    }
}

fn call(number: u64) -> Value {
    if number.is_multiple_of(PARTNER) {
        return json!({"domain": "partner", "descriptors": [described(&[("client", "crawler")])]});
    }
    let user = format!("user-{}", rare(60));
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
    let key = format!("{plan}-{}", rare(12));
    let descriptors = [
        described(&[("route", route)]),
        described(&[("user", &user)]),
        described(&[("plan", plan), ("api_key", &key)]),
    ];
    json!({"domain": "shop", "descriptors": descriptors})
}

/// A random number below `end`. Small numbers are frequent.
fn rare(end: u32) -> u32 {
    let part = fastrand::f64();
    (part * part * f64::from(end)) as u32
}

fn described(entries: &[(&str, &str)]) -> Value {
    let entries: Vec<_> = entries
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    json!({"entries": entries})
}
