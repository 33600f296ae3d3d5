//! The report of a run: JSON for programs, and lines of figures for people.

use serde_json::{Value, json};

use super::run::Measured;
use crate::figures::micros_each;
use crate::machine::Cost;

/// Returns all figures of a run, and the memory of the server if its process is known.
pub(crate) fn to_json(measured: &Measured, resident_bytes: Option<u64>) -> Value {
    let calls = &measured.calls;
    let count = calls.answers.decisions() + calls.answers.failures();
    json!({
        "seconds": calls.elapsed.as_secs_f64(),
        "decisions_per_second": calls.per_second(),
        "answers": calls.answers.to_json(),
        "behind": calls.behind,
        "own": cost_json(&measured.own, count),
        "server": measured.server.as_ref().map(|cost| json!({
            "cost": cost_json(cost, count),
            "resident_bytes": resident_bytes,
        })),
    })
}

fn cost_json(cost: &Cost, count: u64) -> Value {
    json!({
        "cpu_us_per_request": micros_each(cost.total, count),
        "user_us_per_request": micros_each(cost.user, count),
        "system_us_per_request": micros_each(cost.system, count),
    })
}

/// Returns a line for each figure, which begins with the names of its objects.
pub(crate) fn lines(name: &str, figures: &Value) -> String {
    match figures {
        Value::Object(parts) => {
            let part = |(part, value)| lines(format!("{name} {part}").trim_start(), value);
            parts.iter().map(part).collect()
        }
        Value::Number(number) if number.is_f64() => {
            format!("{name:<36} {:.2}\n", number.as_f64().unwrap_or_default())
        }
        value => format!("{name:<36} {value}\n"),
    }
}
