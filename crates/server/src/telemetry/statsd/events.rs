//! Events of DogStatsD, which dashboards show beside graphs. Each kind is sent at most once in a
//! flush.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_api::Availability;

use crate::telemetry::metrics::Loads;

/// Counts at the previous flush, to detect changes.
#[derive(Default)]
pub(super) struct Events {
    loaded: u64,
    refused: u64,
    lost: bool,
}

impl Events {
    /// Writes the events since the previous flush, one per line.
    pub(super) fn write(
        &mut self,
        loads: &Loads,
        store: Availability,
        tags: &str,
        mut out: impl FnMut(&[u8]),
    ) {
        let mut event = |title: &str, text: &str, kind: &str| {
            out(format!(
                "_e{{{},{}}}:{title}|{text}|t:{kind}{tags}\n",
                title.len(),
                text.len()
            )
            .as_bytes());
        };
        let loaded = loads.success.load(Relaxed);
        let refused = loads.error.load(Relaxed);
        if std::mem::replace(&mut self.refused, refused) < refused {
            let text = "It has mistakes, which the log names. The one before stays in force.";
            event("Tidegate refused a configuration", text, "error");
        }
        if std::mem::replace(&mut self.loaded, loaded) < loaded {
            let text = "It is in force.";
            event("Tidegate loaded its configuration", text, "success");
        }
        let lost = store == Availability::Down;
        if std::mem::replace(&mut self.lost, lost) == lost {
            return;
        }
        if lost {
            let text = "Calls fail; Envoy decides by its failure mode.";
            event("Tidegate lost its store of counters", text, "error");
        } else {
            let text = "Calls are counted.";
            event("Tidegate has its store of counters again", text, "success");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(events: &mut Events, loads: &Loads, store: Availability) -> String {
        let mut out = Vec::new();
        events.write(loads, store, "|#a:b", |event| out.extend_from_slice(event));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_change_is_told_once() {
        let mut events = Events::default();
        let loads = Loads::default();
        assert_eq!(written(&mut events, &loads, Availability::Up), "");
        loads.success.store(7, Relaxed);
        let text = written(&mut events, &loads, Availability::Up);
        assert_eq!(
            text,
            "_e{33,15}:Tidegate loaded its configuration|It is in force.|t:success|#a:b\n"
        );
        loads.error.store(3, Relaxed);
        let text = written(&mut events, &loads, Availability::Down);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.starts_with("_e{32,") && text.contains("lost its store"),
            "{text}"
        );
        assert_eq!(written(&mut events, &loads, Availability::Down), "");
        assert!(
            written(&mut events, &loads, Availability::Degraded)
                .contains("again|Calls are counted.|t:success")
        );
        assert_eq!(written(&mut events, &loads, Availability::Up), "");
    }
}
