//! The policies of queues and handlers as a store keeps them: a row for each, with a name and a
//! JSON value.

use serde::de::DeserializeOwned;
use tracing::warn;

use crate::graph::definition::LimitDefinition;
use crate::graph::policies::{Policies, PolicyTarget, Weight};

/// Prefixes of row names.
const QUEUE_LIMITS: &str = "limits/queue/";
const HANDLER_LIMITS: &str = "limits/handler/";
const QUEUE_WEIGHTS: &str = "weights/queue/";

/// The name and the value of a row. The value is `None` if the row is to be removed.
pub(crate) type Row = (String, Option<String>);

/// The row of the limits of a queue or handler.
pub(crate) fn limits_row(subject: &PolicyTarget, limits: &[LimitDefinition]) -> Row {
    let kind = match subject {
        PolicyTarget::Queue(_) => QUEUE_LIMITS,
        PolicyTarget::Handler(_) => HANDLER_LIMITS,
    };
    let value = (!limits.is_empty())
        .then(|| serde_json::to_string(limits).expect("limits are always JSON"));
    (format!("{kind}{}", subject.name()), value)
}

/// The row of the weights of a queue.
pub(crate) fn weights_row(queue: &str, weights: &[Weight]) -> Row {
    let value = (!weights.is_empty())
        .then(|| serde_json::to_string(weights).expect("weights are always JSON"));
    (format!("{QUEUE_WEIGHTS}{queue}"), value)
}

/// Decodes rows. Rows of unknown kinds, which a later version wrote, are logged and skipped.
pub(crate) fn read<'a>(rows: impl Iterator<Item = (&'a String, &'a String)>) -> Policies {
    let mut terms = Policies::default();
    for (name, value) in rows {
        let known = if let Some(queue) = name.strip_prefix(QUEUE_LIMITS) {
            let limits = json(value).map(|limits| {
                terms
                    .limits
                    .insert(PolicyTarget::Queue(queue.to_owned()), limits)
            });
            limits.is_some()
        } else if let Some(handler) = name.strip_prefix(HANDLER_LIMITS) {
            let limits = json(value).map(|limits| {
                terms
                    .limits
                    .insert(PolicyTarget::Handler(handler.to_owned()), limits)
            });
            limits.is_some()
        } else if let Some(queue) = name.strip_prefix(QUEUE_WEIGHTS) {
            json(value)
                .map(|weights| terms.weights.insert(queue.to_owned(), weights))
                .is_some()
        } else {
            false
        };
        if !known {
            warn!(row = %name, "limits or weights of a queue or a handler cannot be read, and do not hold here: a later version wrote them");
        }
    }
    terms
}

fn json<T: DeserializeOwned>(value: &str) -> Option<T> {
    serde_json::from_str(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::definition::Scope;

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
                of: Scope::Queue,
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
        let mut rows: Vec<Row> = subjects
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
        let terms = read(values.filter_map(|(name, value)| Some((name, value.as_ref()?))));
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
