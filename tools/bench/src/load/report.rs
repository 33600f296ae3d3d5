//! How a run is shown: a table for people, JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::run::Measured;
use crate::figures::{micros, per_call};
use crate::machine::Cost;

/// A table of what was measured, one figure a line.
pub(crate) fn table(measured: &Measured) -> String {
    let tally = &measured.tally;
    let seconds = measured.elapsed.as_secs_f64();
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(out, "{name:<28} {value}").expect("writing to a string cannot fail");
    };
    line(
        "decisions a second",
        format!("{:.0}", tally.decisions() as f64 / seconds),
    );
    line("measured for", format!("{seconds:.2} s"));
    line("OK", tally.ok.to_string());
    line("OVER_LIMIT", tally.over_limit.to_string());
    for (what, count) in &tally.errors {
        line(&format!("error: {what}"), count.to_string());
    }
    if measured.behind > 0 {
        line("due but not sent", measured.behind.to_string());
    }
    for (name, time) in tally.percentiles() {
        line(
            &format!("latency {name}"),
            format!("{:.1} us", micros(time)),
        );
    }
    let calls = tally.decisions() + tally.failures();
    match &measured.server {
        Some(server) => {
            line("server CPU per request", cost_line(&server.cost, calls));
            line(
                "server resident",
                format!("{:.1} MiB", server.resident_bytes as f64 / (1 << 20) as f64),
            );
            line(
                "server context switches",
                switches_line(&server.cost, calls),
            );
        }
        None => line(
            "server CPU per request",
            "not known (the process was not found; see --pid)".into(),
        ),
    }
    line("own CPU per request", cost_line(&measured.own, calls));
    out
}

fn cost_line(cost: &Cost, calls: u64) -> String {
    let [total, user, system] =
        [cost.total, cost.user, cost.system].map(|time| per_call(time, calls));
    format!("{total:.2} us (user {user:.2}, system {system:.2})")
}

fn switches_line(cost: &Cost, calls: u64) -> String {
    let per_thousand = |switches: u64| switches as f64 * 1_000.0 / calls.max(1) as f64;
    let (waited, preempted) = (
        per_thousand(cost.voluntary_switches),
        per_thousand(cost.involuntary_switches),
    );
    format!("{waited:.1} voluntary, {preempted:.1} involuntary per 1000 requests")
}

/// The same figures as the table.
pub(crate) fn to_json(measured: &Measured) -> Value {
    let calls = measured.tally.decisions() + measured.tally.failures();
    json!({
        "seconds": measured.elapsed.as_secs_f64(),
        "decisions_per_second": measured.tally.decisions() as f64 / measured.elapsed.as_secs_f64(),
        "answers": measured.tally.to_json(),
        "behind": measured.behind,
        "own": cost_json(&measured.own, calls),
        "server": measured.server.as_ref().map(|server| json!({
            "cost": cost_json(&server.cost, calls),
            "resident_bytes": server.resident_bytes,
        })),
    })
}

fn cost_json(cost: &Cost, calls: u64) -> Value {
    json!({
        "cpu_us_per_request": per_call(cost.total, calls),
        "user_us_per_request": per_call(cost.user, calls),
        "system_us_per_request": per_call(cost.system, calls),
        "voluntary_switches": cost.voluntary_switches,
        "involuntary_switches": cost.involuntary_switches,
    })
}
