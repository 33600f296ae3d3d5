//! Probes partitions that failed until they work again, and logs the failures. Also checks for risks
//! that acknowledged work of the store is lost: a risk is logged when it appears, and shown while it
//! lasts.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_api::ApiMetrics;
use tidegate_workflow::{Durability, Engine, Partition, Store, StoreError, StoreFailure};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::backoff::{Backoff, EventLogThrottle};

/// Interval of the log check while something fails.
const LOG_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Wait after a failure: failures with one cause occur within this time, and are logged in one
/// line.
const COALESCE_TIME: Duration = Duration::from_millis(100);
/// Timeout of the probes before failures are logged.
const PROBE_TIMEOUT: Duration = Duration::from_millis(1_200);

/// Interval between two requests for the settings of the Redis nodes.
const DURABILITY_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Probes until the future is dropped.
pub(super) async fn run(engine: Engine) {
    let mut logged = LoggedFailures::default();
    let mut probes = RecoveryProbes {
        engine: engine.clone(),
        tasks: JoinSet::new(),
        troubles: Vec::new(),
    };
    loop {
        if logged.is_first(&engine.store_failures()) {
            probe(
                &engine,
                (0..engine.store().partitions()).map(Partition).collect(),
            )
            .await;
        }
        let troubles = engine.store_failures();
        logged.record(&troubles);
        let troubled = !troubles.is_empty();
        probes.begin(troubles.into_values());
        tokio::select! {
            () = engine.wait_for_store_failure() => sleep(COALESCE_TIME).await,
            Some(works) = probes.tasks.join_next() => if let Ok(trouble) = works {
                probes.troubles.retain(|other| *other != trouble);
            },
            () = sleep(LOG_CHECK_INTERVAL), if troubled => {}
        }
    }
}

/// Probes partitions concurrently. Returns after `PROBE_TIMEOUT` at the latest.
async fn probe(engine: &Engine, partitions: Vec<Partition>) {
    let mut tasks = JoinSet::new();
    for partition in partitions {
        let engine = engine.clone();
        tasks.spawn(async move { engine.probe(partition).await });
    }
    let _late = timeout(PROBE_TIMEOUT, async {
        while tasks.join_next().await.is_some() {}
    })
    .await;
}

/// A task for each kind of failure, so that a node without answers delays no other. Partitions with
/// equal failures share a task. When one of them recovers, all are probed.
struct RecoveryProbes {
    engine: Engine,
    tasks: JoinSet<StoreFailure>,
    troubles: Vec<StoreFailure>,
}

impl RecoveryProbes {
    fn begin(&mut self, troubles: impl Iterator<Item = StoreFailure>) {
        for trouble in troubles {
            if !self.troubles.contains(&trouble) {
                self.troubles.push(trouble.clone());
                self.tasks
                    .spawn(probe_until_recovered(self.engine.clone(), trouble));
            }
        }
    }
}

async fn probe_until_recovered(engine: Engine, trouble: StoreFailure) -> StoreFailure {
    let mut backoff = Backoff::default();
    let alike = || -> Vec<Partition> {
        let all = engine
            .store_failures()
            .into_iter()
            .filter(|(_, other)| *other == trouble);
        all.map(|(partition, _)| partition).collect()
    };
    while let Some(partition) = fastrand::choice(alike()) {
        sleep(backoff.next()).await;
        engine.probe(partition).await;
        if !engine.store_failures().contains_key(&partition) {
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
    lines: EventLogThrottle,
}

impl LoggedFailures {
    /// Whether these are the first failures.
    fn is_first(&self, troubles: &BTreeMap<Partition, StoreFailure>) -> bool {
        !self.troubled && !troubles.is_empty()
    }

    /// Logs new failures, a reminder once a minute, and the recovery.
    fn record(&mut self, troubles: &BTreeMap<Partition, StoreFailure>) {
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
            self.shown = failures_text(troubles);
            warn!(
                "the store of workflows does not work as it should: {}",
                self.shown
            );
        }
    }
}

/// A kind of call, and its failure in one partition.
type FailureKind = (&'static str, fn(&StoreFailure) -> Option<&StoreError>);

const FAILURE_KINDS: [FailureKind; 3] = [
    ("reads", |trouble| trouble.reads.as_ref()),
    ("removals", |trouble| trouble.removals.as_ref()),
    ("writes", |trouble| trouble.writes.as_ref()),
];

/// Calls of the store that fail in the same partitions for the same reason.
struct AlikeFailures {
    partitions: Vec<u16>,
    reason: String,
    calls: Vec<&'static str>,
}

impl AlikeFailures {
    fn text(&self) -> String {
        format!(
            "{} fail in partitions {}: {}",
            self.calls.join(" and "),
            ranges(&self.partitions),
            self.reason.trim_end_matches('.')
        )
    }
}

/// Failures as text, with one sentence for failures in the same partitions with the same reason.
fn failures_text(troubles: &BTreeMap<Partition, StoreFailure>) -> String {
    let mut failures: Vec<AlikeFailures> = Vec::new();
    for (word, of) in FAILURE_KINDS {
        let failing = troubles
            .iter()
            .filter_map(|(at, trouble)| Some((at.0, of(trouble)?)));
        let (partitions, errors): (Vec<u16>, Vec<_>) = failing.unzip();
        let Some(reason) = errors.first().map(ToString::to_string) else {
            continue;
        };
        match failures
            .iter_mut()
            .find(|failure| failure.partitions == partitions && failure.reason == reason)
        {
            Some(failure) => failure.calls.push(word),
            None => failures.push(AlikeFailures {
                partitions,
                reason,
                calls: vec![word],
            }),
        }
    }
    let texts: Vec<String> = failures.iter().map(AlikeFailures::text).collect();
    texts.join("; ")
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

/// Checks the durability repeatedly. Calls are acknowledged after `replicas` replicas have the
/// write.
pub(super) async fn follow_durability(store: &Store, replicas: u16, activity: &ApiMetrics) {
    loop {
        // A store that does not answer is logged by `store_probe`, and its known risks stay.
        if let Ok(found) = store.durability().await {
            log_new_risks(&found, replicas, activity);
        }
        sleep(DURABILITY_CHECK_INTERVAL).await;
    }
}

/// Logs the risks that were not known before.
pub(super) fn log_new_risks(found: &Durability, replicas: u16, activity: &ApiMetrics) {
    for risk in activity.put_risks(found.risks(replicas)) {
        warn!("{risk}");
    }
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
        let refused = StoreFailure {
            removals: error("NOREPLICAS."),
            writes: error("NOREPLICAS."),
            reads: None,
        };
        let troubles = [(Partition(0), refused.clone()), (Partition(1), refused)].into();
        let one =
            "removals and writes fail in partitions 0-1: the store is unavailable: NOREPLICAS";
        assert_eq!(failures_text(&troubles), one);
        let full = StoreFailure {
            reads: error("gone"),
            writes: error("gone"),
            removals: None,
        };
        let two = [(
            Partition(1),
            StoreFailure {
                removals: error("OOM"),
                ..full
            },
        )]
        .into();
        assert_eq!(
            failures_text(&two),
            "reads and writes fail in partitions 1: the store is unavailable: gone; removals fail in partitions 1: the store is \
             unavailable: OOM"
        );
    }

    #[test]
    fn partitions_are_shown_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    }
}
