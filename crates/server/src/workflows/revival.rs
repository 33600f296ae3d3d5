//! Asks partitions that failed whether they work again, and says in the log what does not work.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use tidegate_workflow::{Engine, Partition, Trouble};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use super::patience::{OnceAMinute, Patience};

/// How often the log looks at what does not work.
const LOOK: Duration = Duration::from_secs(1);
/// The wait after a failure: what fails for the same reason fails within this time, and is said in one line.
const TOGETHER: Duration = Duration::from_millis(100);

/// Asks until it is dropped.
pub(super) async fn run(engine: Engine) {
    let mut said = Said::default();
    let mut asking = Asking { engine, each: JoinSet::new(), partitions: BTreeSet::new() };
    loop {
        let troubles = asking.engine.troubles();
        said.note(&troubles);
        asking.begin(troubles.into_keys());
        tokio::select! {
            () = asking.engine.trouble_began() => sleep(TOGETHER).await,
            Some(works) = asking.each.join_next() => if let Ok(partition) = works {
                asking.partitions.remove(&partition);
            },
            () = sleep(LOOK) => {}
        }
    }
}

/// A task for each partition that failed, so that one that does not answer holds up no other.
struct Asking {
    engine: Engine,
    each: JoinSet<Partition>,
    partitions: BTreeSet<Partition>,
}

impl Asking {
    fn begin(&mut self, troubled: impl Iterator<Item = Partition>) {
        for partition in troubled {
            if self.partitions.insert(partition) {
                self.each.spawn(until_it_works(self.engine.clone(), partition));
            }
        }
    }
}

async fn until_it_works(engine: Engine, partition: Partition) -> Partition {
    let mut patience = Patience::default();
    while engine.troubles().contains_key(&partition) {
        sleep(patience.next()).await;
        engine.probe(partition).await;
    }
    partition
}

/// What the log says.
#[derive(Default)]
struct Said {
    /// What it said last. Empty: all works.
    shown: String,
    lines: OnceAMinute,
}

impl Said {
    /// Says what has begun not to work, and once a minute that it still does not; and when all works again.
    fn note(&mut self, troubles: &BTreeMap<Partition, Trouble>) {
        if troubles.is_empty() {
            if !self.shown.is_empty() {
                info!("the store of workflows works again");
                self.shown.clear();
            }
            return;
        }
        if self.lines.add(1).is_some() {
            self.shown = shown(troubles);
            warn!("the store of workflows does not work as it should: {}", self.shown);
        }
    }
}

/// What fails, for people: each kind of failure with its partitions and one reason.
fn shown(troubles: &BTreeMap<Partition, Trouble>) -> String {
    type Kind = (&'static str, fn(&Trouble) -> Option<&tidegate_workflow::StoreError>);
    let kinds: [Kind; 3] = [
        ("reads", |trouble| trouble.reads.as_ref()),
        ("removals", |trouble| trouble.removals.as_ref()),
        ("writes", |trouble| trouble.writes.as_ref()),
    ];
    let mut shown = String::new();
    for (word, of) in kinds {
        let failing: Vec<_> = troubles.iter().filter_map(|(at, trouble)| Some((at.0, of(trouble)?))).collect();
        if let Some((_, reason)) = failing.first() {
            let partitions: Vec<u16> = failing.iter().map(|(at, _)| *at).collect();
            let _ = write!(shown, "{word} fail in partitions {}: {reason}. ", ranges(&partitions));
        }
    }
    shown
}

/// Ascending numbers as `0-3, 7`.
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
    fn partitions_are_shown_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
    }
}
