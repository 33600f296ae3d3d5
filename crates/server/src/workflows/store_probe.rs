//! Probes partitions that failed until they work again, and logs the failures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use tidegate_workflow::{Engine, Partition, StoreError, Trouble};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::backoff::{OnceAMinute, Patience};

/// Interval of the log check while something fails.
const LOOK: Duration = Duration::from_secs(1);
/// Wait after a failure: failures with one cause occur within this time, and are logged in one
/// line.
const COALESCE_TIME: Duration = Duration::from_millis(100);
/// Timeout of the probes before failures are logged.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1_200);

/// Probes until the future is dropped.
pub(super) async fn run(engine: Engine) {
    let mut said = LoggedFailures::default();
    let mut asking = RecoveryProbes {
        engine: engine.clone(),
        each: JoinSet::new(),
        troubles: Vec::new(),
    };
    loop {
        if said.is_news(&engine.troubles()) {
            probe(
                &engine,
                (0..engine.store().partitions()).map(Partition).collect(),
            )
            .await;
        }
        let troubles = engine.troubles();
        said.note(&troubles);
        let troubled = !troubles.is_empty();
        asking.begin(troubles.into_values());
        tokio::select! {
            () = engine.trouble_began() => sleep(COALESCE_TIME).await,
            Some(works) = asking.each.join_next() => if let Ok(trouble) = works {
                asking.troubles.retain(|other| *other != trouble);
            },
            () = sleep(LOOK), if troubled => {}
        }
    }
}

/// Probes partitions concurrently. Returns after `PROBE_TIMEOUT` at the latest.
async fn probe(engine: &Engine, partitions: Vec<Partition>) {
    let mut asked = JoinSet::new();
    for partition in partitions {
        let engine = engine.clone();
        asked.spawn(async move { engine.probe(partition).await });
    }
    let _late = timeout(PROBE_TIMEOUT, async {
        while asked.join_next().await.is_some() {}
    })
    .await;
}

/// A task for each kind of failure, so that a node without answers delays no other. Partitions with
/// equal failures share a task. When one of them recovers, all are probed.
struct RecoveryProbes {
    engine: Engine,
    each: JoinSet<Trouble>,
    troubles: Vec<Trouble>,
}

impl RecoveryProbes {
    fn begin(&mut self, troubles: impl Iterator<Item = Trouble>) {
        for trouble in troubles {
            if !self.troubles.contains(&trouble) {
                self.troubles.push(trouble.clone());
                self.each
                    .spawn(until_it_is_over(self.engine.clone(), trouble));
            }
        }
    }
}

async fn until_it_is_over(engine: Engine, trouble: Trouble) -> Trouble {
    let mut patience = Patience::default();
    let alike = || -> Vec<Partition> {
        let all = engine
            .troubles()
            .into_iter()
            .filter(|(_, other)| *other == trouble);
        all.map(|(partition, _)| partition).collect()
    };
    while let Some(one) = fastrand::choice(alike()) {
        sleep(patience.next()).await;
        engine.probe(one).await;
        if !engine.troubles().contains_key(&one) {
            probe(&engine, alike()).await;
        }
    }
    trouble
}

/// Failures that were logged.
#[derive(Default)]
struct LoggedFailures {
    /// Whether something failed at the latest check.
    troubled: bool,
    /// Text of the latest warning. Empty if nothing fails.
    shown: String,
    lines: OnceAMinute,
}

impl LoggedFailures {
    /// Whether these are the first failures.
    fn is_news(&self, troubles: &BTreeMap<Partition, Trouble>) -> bool {
        !self.troubled && !troubles.is_empty()
    }

    /// Logs new failures, a reminder once a minute, and the recovery.
    fn note(&mut self, troubles: &BTreeMap<Partition, Trouble>) {
        self.troubled = !troubles.is_empty();
        if troubles.is_empty() {
            if !self.shown.is_empty() {
                // The recovery has the level of the failure.
                warn!("the store of workflows works again");
                self.shown.clear();
            }
            return;
        }
        if self.lines.add(1).is_some() {
            self.shown = shown(troubles);
            warn!(
                "the store of workflows does not work as it should: {}",
                self.shown
            );
        }
    }
}

/// Failures as text, with one sentence for failures in the same partitions with the same reason.
fn shown(troubles: &BTreeMap<Partition, Trouble>) -> String {
    type Kind = (&'static str, fn(&Trouble) -> Option<&StoreError>);
    let kinds: [Kind; 3] = [
        ("reads", |trouble| trouble.reads.as_ref()),
        ("removals", |trouble| trouble.removals.as_ref()),
        ("writes", |trouble| trouble.writes.as_ref()),
    ];
    let mut failures: Vec<(Vec<u16>, String, Vec<&str>)> = Vec::new();
    for (word, of) in kinds {
        let failing: Vec<_> = troubles
            .iter()
            .filter_map(|(at, trouble)| Some((at.0, of(trouble)?)))
            .collect();
        let Some((_, reason)) = failing.first() else {
            continue;
        };
        let (partitions, reason): (Vec<u16>, _) = (
            failing.iter().map(|(at, _)| *at).collect(),
            reason.to_string(),
        );
        match failures
            .iter_mut()
            .find(|failure| failure.0 == partitions && failure.1 == reason)
        {
            Some((.., words)) => words.push(word),
            None => failures.push((partitions, reason, vec![word])),
        }
    }
    let mut shown = String::new();
    for (partitions, reason, words) in failures {
        let between = if shown.is_empty() { "" } else { "; " };
        let words = words.join(" and ");
        let _ = write!(
            shown,
            "{between}{words} fail in partitions {}: {}",
            ranges(&partitions),
            reason.trim_end_matches('.')
        );
    }
    shown
}

/// Ascending numbers in the form `0-3, 7`.
fn ranges(numbers: &[u16]) -> String {
    let chunks = numbers.chunk_by(|left, right| left + 1 == *right);
    let each = chunks.map(|chunk| match chunk {
        [first, .., last] => format!("{first}-{last}"),
        [one] => one.to_string(),
        [] => String::new(),
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_for_one_reason_is_one_sentence() {
        let error = |reason: &str| {
            Some(StoreError::Unavailable {
                reason: reason.to_owned(),
            })
        };
        let refused = Trouble {
            removals: error("NOREPLICAS."),
            writes: error("NOREPLICAS."),
            reads: None,
        };
        let troubles = [(Partition(0), refused.clone()), (Partition(1), refused)].into();
        let one =
            "removals and writes fail in partitions 0-1: the store is unavailable: NOREPLICAS";
        assert_eq!(shown(&troubles), one);
        let full = Trouble {
            reads: error("gone"),
            writes: error("gone"),
            removals: None,
        };
        let two = [(
            Partition(1),
            Trouble {
                removals: error("OOM"),
                ..full
            },
        )]
        .into();
        assert_eq!(
            shown(&two),
            "reads and writes fail in partitions 1: the store is unavailable: gone; removals fail in partitions 1: the store is \
             unavailable: OOM"
        );
    }

    #[test]
    fn partitions_are_shown_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    }
}
