//! The stored form of an override: a field that identifies it, and a value with the rest. Both are
//! JSON.

use serde_json::{Map, Value, json};

use super::{EffectKind, Factor, LimitOverride, OverrideEffect, OverrideTarget, Reach};
use crate::model::{Entry, Timestamp};

/// Version of the value. A record of another version is kept and has no effect.
const RECORD_VERSION: u64 = 1;

/// Returns the field of an override.
pub(super) fn field(target: &OverrideTarget, kind: EffectKind) -> String {
    let kind = name(kind);
    match target {
        OverrideTarget::Rule { stats_key } => json!([kind, "rule", stats_key]),
        OverrideTarget::Key { domain, entries } => {
            let entries: Vec<Value> = entries
                .iter()
                .map(|entry| json!([entry.key, entry.value]))
                .collect();
            json!([kind, "key", domain, entries])
        }
    }
    .to_string()
}

/// Returns the value of an override.
pub(super) fn value(limit_override: &LimitOverride) -> String {
    let mut value = Map::new();
    let mut set = |name: &str, field: Value| value.insert(name.to_owned(), field);
    set("version", RECORD_VERSION.into());
    match limit_override.effect {
        OverrideEffect::Paused(reach) | OverrideEffect::Throttled(reach) => {
            set("requests", (reach == Reach::JobsAndRequests).into())
        }
        OverrideEffect::Scaled(factor) => set("millionths", factor.0.into()),
    };
    if let Some(until) = limit_override.until {
        set("until", until.0.into());
    }
    set("by", limit_override.by.as_str().into());
    set("at", limit_override.at.0.into());
    set("reason", limit_override.reason.as_str().into());
    Value::from(value).to_string()
}

/// Parses a stored override. `None` if this version does not understand it.
pub(super) fn read(field: &[u8], value: &[u8]) -> Option<LimitOverride> {
    let field = serde_json::from_slice::<Vec<Value>>(field).ok()?;
    let value = serde_json::from_slice::<Value>(value).ok()?;
    if value["version"].as_u64()? != RECORD_VERSION {
        return None;
    }
    let (kind, target) = field.split_first()?;
    let until = match &value["until"] {
        Value::Null => None,
        until => Some(Timestamp(until.as_u64()?)),
    };
    Some(LimitOverride {
        target: self::target(target)?,
        effect: effect(kind.as_str()?, &value)?,
        until,
        by: text(&value["by"])?,
        at: Timestamp(value["at"].as_u64()?),
        reason: text(&value["reason"])?,
    })
}

/// Parses the part of a field after the kind of the effect.
fn target(elements: &[Value]) -> Option<OverrideTarget> {
    Some(match elements {
        [kind, stats_key] if kind == "rule" => OverrideTarget::Rule {
            stats_key: text(stats_key)?,
        },
        [kind, domain, Value::Array(entries)] if kind == "key" => OverrideTarget::Key {
            domain: text(domain)?,
            entries: entries.iter().map(entry).collect::<Option<_>>()?,
        },
        _ => return None,
    })
}

fn effect(kind: &str, value: &Value) -> Option<OverrideEffect> {
    let reach = || {
        Some(if value["requests"].as_bool()? {
            Reach::JobsAndRequests
        } else {
            Reach::Jobs
        })
    };
    Some(match kind {
        "paused" => OverrideEffect::Paused(reach()?),
        "throttled" => OverrideEffect::Throttled(reach()?),
        "scaled" => OverrideEffect::Scaled(Factor(value["millionths"].as_u64()?.try_into().ok()?)),
        _ => return None,
    })
}

fn name(kind: EffectKind) -> &'static str {
    match kind {
        EffectKind::Paused => "paused",
        EffectKind::Throttled => "throttled",
        EffectKind::Scaled => "scaled",
    }
}

fn entry(value: &Value) -> Option<Entry> {
    match value.as_array()?.as_slice() {
        [key, value] => Some(Entry {
            key: text(key)?,
            value: text(value)?,
        }),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let entries = vec![Entry {
            key: "tenant".to_owned(),
            value: "\"a\" \n_b".to_owned(),
        }];
        let targets = [
            OverrideTarget::Rule {
                stats_key: "vendor.tenant".to_owned(),
            },
            OverrideTarget::Key {
                domain: "vendor".to_owned(),
                entries,
            },
            OverrideTarget::Key {
                domain: String::new(),
                entries: Vec::new(),
            },
        ];
        let effects = [
            OverrideEffect::Paused(Reach::Jobs),
            OverrideEffect::Throttled(Reach::JobsAndRequests),
            OverrideEffect::Scaled(Factor::new(0.123_456).unwrap()),
        ];
        let mut fields = Vec::new();
        for (target, effect, until) in targets
            .iter()
            .zip(effects)
            .zip([None, Some(Timestamp(7)), None])
            .map(flat)
        {
            let by = "ada".to_owned();
            let reason = "a \u{1f600} reason".to_owned();
            let written = LimitOverride {
                target: target.clone(),
                effect,
                until,
                by,
                at: Timestamp(5),
                reason,
            };
            let field = field(target, effect.kind());
            let value = value(&written);
            assert_eq!(read(field.as_bytes(), value.as_bytes()), Some(written));
            let later = value.replace("\"version\":1", "\"version\":2");
            assert_eq!(read(field.as_bytes(), later.as_bytes()), None);
            assert_eq!(read(value.as_bytes(), field.as_bytes()), None);
            fields.push(field);
        }
        assert_eq!(fields[0], r#"["paused","rule","vendor.tenant"]"#);
        assert_eq!(
            fields[1],
            r#"["throttled","key","vendor",[["tenant","\"a\" \n_b"]]]"#
        );
        for (field, value) in [
            ("", ""),
            ("[]", "{}"),
            ("[]", r#"{"version":1}"#),
            ("[1,2,3]", r#"{"version":1}"#),
        ] {
            assert_eq!(read(field.as_bytes(), value.as_bytes()), None);
        }
    }

    fn flat<A, B, C>(((a, b), c): ((A, B), C)) -> (A, B, C) {
        (a, b, c)
    }
}
