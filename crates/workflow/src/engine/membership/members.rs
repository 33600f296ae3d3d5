//! Liveness of the servers that have a record in the store.

use std::time::Duration;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::assignment::assign_partitions;
use super::{Member, ServerDescription};
use crate::id::Partition;
use crate::store::change_notice::ServerId;
use crate::time::Timestamp;

/// Time for which a server is alive after its last heartbeat: two heartbeats may be missed.
const ALIVE_TTL: Duration = Duration::from_secs(6);
/// Age at which a record is removed.
const RECORD_TTL: Duration = Duration::from_secs(60);
/// A record that is further in the future was written while the clock of the store, or of its
/// server, was ahead. Its times are ignored.
const MAX_CLOCK_SKEW: Duration = ALIVE_TTL;
/// Most members that are read.
const MOST: usize = 1_024;

/// Record of a member in the store. Later versions may add fields.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct MemberRecord {
    pub(super) at: u64,
    pub(super) began: u64,
    #[serde(flatten)]
    pub(super) about: ServerDescription,
    /// Whether Redis refuses the announcements of the server.
    #[serde(rename = "mute", default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) cannot_publish: bool,
    /// Time since which workers could reach all partitions through the server, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) served: Option<u64>,
}

/// Servers that are alive, and servers whose records must be removed.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) living: Vec<Member>,
    pub(super) gone: Vec<ServerId>,
    /// Whether some member cannot announce its writes.
    pub(super) cannot_publish: bool,
}

/// Servers whose records were from the future. They are alive again after their next heartbeat.
#[derive(Debug, Default)]
pub(super) struct FutureRecords(HashMap<ServerId, FutureRecord>);

#[derive(Debug)]
struct FutureRecord {
    at: u64,
    /// Time at which this server first read the record.
    read: Timestamp,
    /// Whether the record before was from the future, too.
    again: bool,
}

enum Liveness {
    Alive,
    Suspect,
    Expired,
}

impl Liveness {
    /// Returns the liveness of a server with this last heartbeat.
    fn since(heard: Timestamp, now: Timestamp) -> Self {
        match now.since(heard) {
            silence if silence <= ALIVE_TTL => Self::Alive,
            silence if silence > RECORD_TTL => Self::Expired,
            _ => Self::Suspect,
        }
    }
}

impl FutureRecords {
    fn standing(&mut self, id: ServerId, at: u64, now: Timestamp) -> Liveness {
        let heard = Timestamp::from_micros(at);
        let known = self.0.get(&id);
        if known.is_none_or(|said| said.at != at) {
            let again = known.is_some();
            if heard.since(now) <= MAX_CLOCK_SKEW {
                self.0.remove(&id);
                return Liveness::since(heard, now);
            }
            if !again {
                warn!(
                    server = %id,
                    seconds = heard.since(now).as_secs(),
                    "the last heartbeat of a server is in the future: the clock of redis was set back, or another redis took over. The \
                     server counts as gone until its next heartbeat"
                );
            }
            self.0.insert(
                id,
                FutureRecord {
                    at,
                    read: now,
                    again,
                },
            );
        }
        let said = &self.0[&id];
        match Liveness::since(said.read, now) {
            Liveness::Alive if !said.again => Liveness::Suspect,
            standing => standing,
        }
    }
}

/// Returns the members of these records, with their partitions, and the servers to remove. A record
/// that cannot be read is ignored: its server assigns partitions in another way.
pub(super) fn roster(
    entries: Vec<(String, String)>,
    partitions: u16,
    ahead: &mut FutureRecords,
    now: Timestamp,
) -> Members {
    let mut roster = Members::default();
    let mut seen = Vec::new();
    for (id, entry) in entries.into_iter().take(MOST) {
        let (Ok(id), Ok(entry)) = (
            id.parse::<ServerId>(),
            serde_json::from_str::<MemberRecord>(&entry),
        ) else {
            continue;
        };
        seen.push(id);
        let MemberRecord {
            at,
            began,
            about,
            cannot_publish: mute,
            served,
        } = entry;
        let heard = Timestamp::from_micros(at);
        let began = Timestamp::from_micros(began);
        match ahead.standing(id, at, now) {
            Liveness::Alive => {
                let served_since = served.map(Timestamp::from_micros);
                roster.living.push(Member {
                    id,
                    about,
                    began,
                    last_heartbeat: heard,
                    served_since,
                    partitions: Vec::new(),
                });
                roster.cannot_publish |= mute;
            }
            Liveness::Suspect => {}
            Liveness::Expired => roster.gone.push(id),
        }
    }
    ahead.0.retain(|id, _| seen.contains(id));
    let ids: Vec<ServerId> = roster.living.iter().map(|server| server.id).collect();
    for (partition, home) in (0..).zip(assign_partitions(partitions, &ids)) {
        let server = roster.living.iter_mut().find(|server| server.id == home);
        server
            .expect("homes are shared out among them")
            .partitions
            .push(Partition(partition));
    }
    roster
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn entry(id: u64, seconds: u64) -> (String, String) {
        let text = format!(
            r#"{{"at":{},"began":0,"version":"1","address":"a","new":1}}"#,
            seconds * 1_000_000
        );
        (ServerId(id).to_string(), text)
    }

    #[test]
    fn only_who_was_heard_of_lately_has_homes() {
        let unknown = (ServerId(9).to_string(), "?".to_owned());
        let entries = vec![
            entry(1, 100),
            entry(2, 95),
            entry(3, 90),
            entry(4, 30),
            unknown,
        ];
        let roster = roster(entries, 16, &mut FutureRecords::default(), at(100));
        let found: Vec<_> = roster
            .living
            .iter()
            .map(|server| (server.id.0, server.partitions.len()))
            .collect();
        assert_eq!(found, [(1, 8), (2, 8)]);
        assert_eq!(roster.gone, [ServerId(4)]);
    }

    /// The clock of the store was ahead during their heartbeats.
    #[test]
    fn who_was_heard_of_in_the_future_has_homes_when_it_is_heard_of_again() {
        let mut ahead = FutureRecords::default();
        let mut check = |now: u64, others: [u64; 3], living: &[u64], gone: &[u64]| {
            let entries = [
                entry(1, now),
                entry(2, others[0]),
                entry(3, others[1]),
                entry(4, others[2]),
            ];
            let roster = roster(entries.into(), 16, &mut ahead, at(now));
            let found: Vec<_> = roster.living.iter().map(|server| server.id.0).collect();
            assert_eq!(found, living, "at {now}");
            assert_eq!(
                roster
                    .gone
                    .iter()
                    .map(|server| server.0)
                    .collect::<Vec<_>>(),
                gone,
                "at {now}"
            );
        };
        check(100, [700, 700, 140], &[1], &[]);
        check(102, [702, 700, 140], &[1, 2], &[]);
        check(104, [104, 700, 140], &[1, 2], &[]);
        // The time of its record has come, and there was no new heartbeat.
        check(140, [140, 700, 140], &[1, 2], &[]);
        check(161, [140, 700, 140], &[1], &[3, 4]);
    }
}
