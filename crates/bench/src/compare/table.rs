//! The figures side by side.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Row, Turn};
use crate::figures::Spread;
use crate::figures::per_call;
use crate::machine::Store;

/// Another server's figures, taken earlier with the same load on two cores.
struct Other {
    name: &'static str,
    descriptors: u16,
    decisions_per_second: Option<f64>,
    cpu_us: f64,
}

const OTHERS: [Other; 4] = [
    Other { name: "envoyproxy/ratelimit, Redis", descriptors: 1, decisions_per_second: Some(15_100.0), cpu_us: 104.0 },
    Other { name: "envoyproxy/ratelimit, Redis", descriptors: 10, decisions_per_second: Some(7_500.0), cpu_us: 219.0 },
    Other { name: "limitador, Redis", descriptors: 1, decisions_per_second: None, cpu_us: 91.0 },
    Other { name: "limitador, memory", descriptors: 1, decisions_per_second: Some(50_000.0), cpu_us: 20.0 },
];

/// A table of medians, ours first.
pub(super) fn decisions(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut line = |cells: [String; 8]| {
        let [name, keys, descriptors, rate, total, user, system, redis] = cells;
        writeln!(
            out,
            "{name:<28} {keys:<16} {descriptors:>11} {rate:>12} {total:>18} {user:>8} {system:>8} {redis:>9}"
        )
        .expect("writing to a string cannot fail");
    };
    let heads = ["server", "load", "descriptors", "decisions/s", "CPU us/decision", "user", "system", "Redis us"];
    line(heads.map(str::to_owned));
    for row in rows {
        let total = spread(row, |turn| Some(turn.server_us()));
        let middle = |figure: fn(&Turn) -> Option<f64>, digits: usize| match spread(row, figure) {
            Some(spread) => format!("{:.digits$}", spread.median),
            None => "-".to_owned(),
        };
        line([
            row.name().to_owned(),
            row.traffic.name().to_owned(),
            row.descriptors.to_string(),
            middle(|turn| Some(turn.per_second), 0),
            total.map_or("-".to_owned(), |spread| {
                format!("{:.1} ({:.1}-{:.1})", spread.median, spread.least, spread.most)
            }),
            middle(|turn| Some(per_call(turn.server.user, turn.decisions)), 1),
            middle(|turn| Some(per_call(turn.server.system, turn.decisions)), 1),
            middle(Turn::redis_us, 1),
        ]);
    }
    for other in &OTHERS {
        line([
            other.name.to_owned(),
            "h2load, one key".to_owned(),
            other.descriptors.to_string(),
            other.decisions_per_second.map_or("-".to_owned(), |rate| format!("{rate:.0}")),
            format!("{:.0}", other.cpu_us),
            "-".to_owned(),
            "-".to_owned(),
            "-".to_owned(),
        ]);
    }
    out
}

/// Every turn of every variant.
pub(super) fn to_json(rows: &[Row]) -> Value {
    let turn = |turn: &Turn| {
        json!({
            "decisions": turn.decisions,
            "decisions_per_second": turn.per_second,
            "server_user_us": per_call(turn.server.user, turn.decisions),
            "server_system_us": per_call(turn.server.system, turn.decisions),
            "server_switches": turn.server.voluntary_switches + turn.server.involuntary_switches,
            "redis_us": turn.redis_us(),
        })
    };
    let row = |row: &Row| {
        let turns: Vec<Value> = row.turns.iter().map(turn).collect();
        json!({ "server": row.name(), "load": row.traffic.name(), "descriptors": row.descriptors, "turns": turns })
    };
    rows.iter().map(row).collect()
}

impl Row {
    fn name(&self) -> &'static str {
        match self.store {
            Store::Embedded => "tidegate, memory",
            Store::Redis | Store::FarRedis => "tidegate, Redis",
        }
    }
}

fn spread(row: &Row, figure: impl Fn(&Turn) -> Option<f64>) -> Option<Spread> {
    Spread::new(row.turns.iter().filter_map(figure).collect())
}
