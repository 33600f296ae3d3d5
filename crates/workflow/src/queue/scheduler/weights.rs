//! Weights by which the keys of a queue take turns.

use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;

use crate::graph::{Limits, Weight};
use crate::queue::QueueCache;

/// The weights of one queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Weights {
    /// Weights by their first entry, so that a key is compared with few of them.
    by_first: HashMap<(String, String), Vec<Weight>>,
}

impl Weights {
    fn new(weights: &[Weight]) -> Self {
        let mut by_first: HashMap<(String, String), Vec<Weight>> = HashMap::new();
        for weight in weights {
            let Some(first) = weight.entries.first() else {
                continue;
            };
            by_first
                .entry(first.clone())
                .or_default()
                .push(weight.clone());
        }
        Self { by_first }
    }

    /// Weight of a key: the weight with most entries that one limit of the key has all of, or 1 if
    /// there is none.
    pub(crate) fn weight_for(&self, limits: &Limits) -> u32 {
        if self.by_first.is_empty() {
            return 1;
        }
        let mut best: Option<&Weight> = None;
        for limit in limits.as_slice() {
            let entries = limit.definition().into_entries();
            let may = entries
                .iter()
                .filter_map(|entry| self.by_first.get(entry))
                .flatten();
            for weight in
                may.filter(|weight| weight.entries.iter().all(|entry| entries.contains(entry)))
            {
                if best.is_none_or(|best| weight.entries.len() > best.entries.len()) {
                    best = Some(weight);
                }
            }
        }
        best.map_or(1, |best| best.weight.max(1))
    }
}

impl QueueCache {
    /// Replaces the weights of all queues, for known keys and later ones. Queues that are not named
    /// have none.
    pub(crate) fn set_weights(&self, weights: &HashMap<String, Vec<Weight>>) {
        let mut by_name = self.lock();
        let mut known = self.weights.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *known);
        for (name, weights) in weights {
            let weights = Weights::new(weights);
            let same = before.get(name).filter(|before| ***before == weights);
            known.insert(
                name.clone(),
                same.cloned().unwrap_or_else(|| Arc::new(weights)),
            );
        }
        for name in before.keys().chain(known.keys()) {
            let weights = known.get(name);
            if before.get(name).map(Arc::as_ptr) != weights.map(Arc::as_ptr)
                && let Some(queue) = by_name.get_mut(name)
            {
                queue
                    .ready_jobs
                    .set_weights(weights.cloned().unwrap_or_default());
            }
        }
    }

    /// Returns the weights of a new queue. Lock order: after `by_name`, or without it.
    pub(crate) fn weights_for(&self, name: &str) -> Arc<Weights> {
        self.weights
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{KeyMemory, ReadyJobs};

    fn weight(entries: &[(&str, &str)], weight: u32) -> Weight {
        let entries = entries
            .iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        Weight { entries, weight }
    }

    #[test]
    fn the_weight_with_most_entries_of_a_limit_holds() {
        let weights = Weights::new(&[
            weight(&[("tenant", "gold")], 5),
            weight(&[("tenant", "gold"), ("region", "eu")], 9),
            weight(&[("region", "eu"), ("tenant", "gold")], 10),
            weight(&[("region", "us")], 2),
        ]);
        for (key, expected) in [
            (r#"[["vendor",1,"tenant","gold"]]"#, 5),
            (r#"[["vendor",1,"tenant","iron"]]"#, 1),
            (r#"[["vendor",1,"tenant","gold","region","eu"]]"#, 9),
            (r#"[["vendor",1,"region","eu","tenant","gold"]]"#, 10),
            (
                r#"[["vendor",1,"tenant","gold"],[3,"all","region","eu"]]"#,
                5,
            ),
            (r#"[[3,"queue:q","region","us"]]"#, 2),
            (r#"[["vendor",1,"gold","tenant"]]"#, 1),
        ] {
            assert_eq!(
                weights.weight_for(&Limits::parse(key).unwrap()),
                expected,
                "{key}"
            );
        }
    }

    #[test]
    fn weights_hold_for_keys_that_come_later() {
        let key = |tenant: &str| crate::queue::LaneKey {
            limits: format!(r#"[["vendor",1,"tenant","{tenant}"]]"#).into(),
            handler: "h".into(),
        };
        let mut lanes = ReadyJobs::new(KeyMemory::new(1 << 20), Arc::default());
        let strides = |lanes: &ReadyJobs| {
            ["gold", "iron"].map(|tenant| {
                lanes
                    .group(&key(tenant).limits)
                    .map(|group| lanes.unlimited.stride() / group.stride())
            })
        };
        lanes.change(&key("gold"), |_| ());
        assert_eq!(strides(&lanes), [Some(1), None]);
        lanes.set_weights(Arc::new(Weights::new(&[
            weight(&[("tenant", "gold")], 4),
            weight(&[("tenant", "iron")], 2),
        ])));
        lanes.change(&key("iron"), |_| ());
        assert_eq!(strides(&lanes), [Some(4), Some(2)]);
        lanes.set_weights(Arc::default());
        assert_eq!(strides(&lanes), [Some(1), Some(1)]);
    }
}
