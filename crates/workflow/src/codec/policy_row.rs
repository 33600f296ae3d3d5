//! The policies of queues and handlers as a store keeps them: a row for each, with a name and a
//! JSON value.

use serde::de::DeserializeOwned;
use tracing::warn;

use crate::graph::{LimitDefinition, Policies, PolicyTarget, Weight};

/// Prefixes of row names.
const QUEUE_LIMITS: &str = "limits/queue/";
const HANDLER_LIMITS: &str = "limits/handler/";
const QUEUE_WEIGHTS: &str = "weights/queue/";

/// The name and the value of a row. The value is `None` if the row is to be removed.
pub(crate) type PolicyRow = (String, Option<String>);

/// The row of the limits of a queue or handler.
pub(crate) fn limits_row(target: &PolicyTarget, limits: &[LimitDefinition]) -> PolicyRow {
    let kind = match target {
        PolicyTarget::Queue(_) => QUEUE_LIMITS,
        PolicyTarget::Handler(_) => HANDLER_LIMITS,
    };
    let value = (!limits.is_empty())
        .then(|| serde_json::to_string(limits).expect("limits are always JSON"));
    (format!("{kind}{}", target.name()), value)
}

/// The row of the weights of a queue.
pub(crate) fn weights_row(queue: &str, weights: &[Weight]) -> PolicyRow {
    let value = (!weights.is_empty())
        .then(|| serde_json::to_string(weights).expect("weights are always JSON"));
    (format!("{QUEUE_WEIGHTS}{queue}"), value)
}

/// Decodes rows. Rows of unknown kinds, which a later version wrote, are logged and skipped.
pub(crate) fn decode_policies<'a>(
    rows: impl Iterator<Item = (&'a String, &'a String)>,
) -> Policies {
    let mut policies = Policies::default();
    for (name, value) in rows {
        if decode_row(&mut policies, name, value).is_none() {
            warn!(row = %name, "limits or weights of a queue or a handler cannot be read, and do not hold here: a later version wrote them");
        }
    }
    policies
}

/// Adds a row to the policies. `None` if it cannot be read.
fn decode_row(policies: &mut Policies, name: &str, value: &str) -> Option<()> {
    if let Some(queue) = name.strip_prefix(QUEUE_WEIGHTS) {
        policies.weights.insert(queue.to_owned(), json(value)?);
        return Some(());
    }
    let target = match name.strip_prefix(QUEUE_LIMITS) {
        Some(queue) => PolicyTarget::Queue(queue.to_owned()),
        None => PolicyTarget::Handler(name.strip_prefix(HANDLER_LIMITS)?.to_owned()),
    };
    policies.limits.insert(target, json(value)?);
    Some(())
}

fn json<T: DeserializeOwned>(value: &str) -> Option<T> {
    serde_json::from_str(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ConcurrencyScope;

    #[test]
    fn rows_say_what_was_set() {
        let entries = || vec![("tenant".to_owned(), "$.tenant".to_owned())];
        let limits = [
            LimitDefinition::Units {
                domain: "vendor".to_owned(),
                entries: entries(),
                hits: 2,
            },
            LimitDefinition::Concurrency {
                most: 3,
                of: ConcurrencyScope::Queue,
                entries: Vec::new(),
            },
        ];
        let weights = [Weight {
            entries: entries(),
            weight: 5,
        }];
        let subjects = [
            PolicyTarget::Queue("mail".to_owned()),
            PolicyTarget::Handler("a/b".to_owned()),
        ];
        let mut rows: Vec<PolicyRow> = subjects
            .iter()
            .map(|subject| limits_row(subject, &limits))
            .collect();
        rows.push(weights_row("mail", &weights));
        let expected = r#"[{"units":{"domain":"vendor","entries":[["tenant","$.tenant"]],"hits":2}},{"concurrency":{"most":3,"of":"queue","entries":[]}}]"#;
        assert_eq!(
            rows[1],
            ("limits/handler/a/b".to_owned(), Some(expected.to_owned()))
        );
        assert_eq!(
            rows[2].1.as_deref(),
            Some(r#"[{"entries":[["tenant","$.tenant"]],"weight":5}]"#)
        );
        let later = r#"[{"cost":1}]"#.to_owned();
        rows.push(("limits/queue/later".to_owned(), Some(later)));
        rows.push(("else".to_owned(), Some("[]".to_owned())));
        let values = rows.iter();
        let terms =
            decode_policies(values.filter_map(|(name, value)| Some((name, value.as_ref()?))));
        assert!(
            subjects
                .iter()
                .all(|subject| terms.limits(subject) == limits)
        );
        assert_eq!(
            (
                terms.limits.len(),
                terms.weights("mail"),
                terms.weights("a/b")
            ),
            (2, &weights[..], &[][..])
        );
        assert_eq!(
            limits_row(&subjects[0], &[]),
            ("limits/queue/mail".to_owned(), None)
        );
    }
}
