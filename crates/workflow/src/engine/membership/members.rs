//! Liveness of the servers that have a record in the store.

use std::time::Duration;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::assignment::assign_partitions;
use super::{Member, ServerDescription};
use crate::model::{Partition, Timestamp};
use crate::store::ServerId;

/// Time for which a server is alive after its last heartbeat: two heartbeats may be missed.
const ALIVE_TTL: Duration = Duration::from_secs(6);
/// Age at which a record is removed.
const RECORD_TTL: Duration = Duration::from_secs(60);
/// A record that is further in the future was written while the clock of the store, or of its
/// server, was ahead. Its times are ignored.
const MAX_CLOCK_SKEW: Duration = ALIVE_TTL;
/// Most members that are read.
const MAX_MEMBERS: usize = 1_024;

/// Record of a member in the store. Later versions may add fields.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct MemberRecord {
    #[serde(rename = "at")]
    pub(super) heartbeat_micros: u64,
    #[serde(rename = "began")]
    pub(super) started_micros: u64,
    #[serde(flatten)]
    pub(super) description: ServerDescription,
    /// Whether Redis refuses the announcements of the server.
    #[serde(rename = "mute", default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) cannot_publish: bool,
    /// Time since which workers could reach all partitions through the server, in microseconds.
    #[serde(rename = "served", default, skip_serializing_if = "Option::is_none")]
    pub(super) served_since_micros: Option<u64>,
}

impl MemberRecord {
    /// The member of this record, without its partitions.
    fn into_member(self, id: ServerId) -> Member {
        Member {
            id,
            description: self.description,
            started_at: Timestamp::from_micros(self.started_micros),
            last_heartbeat: Timestamp::from_micros(self.heartbeat_micros),
            served_since: self.served_since_micros.map(Timestamp::from_micros),
            partitions: Vec::new(),
        }
    }
}

/// Servers that are alive, and servers whose records must be removed.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) alive: Vec<Member>,
    pub(super) expired: Vec<ServerId>,
    /// Whether some member cannot announce its writes.
    pub(super) cannot_publish: bool,
}

/// Servers whose records were from the future. They are alive again after their next heartbeat.
#[derive(Debug, Default)]
pub(super) struct FutureRecords(HashMap<ServerId, FutureRecord>);

#[derive(Debug)]
struct FutureRecord {
    heartbeat_micros: u64,
    /// Time at which this server first read the record.
    first_read: Timestamp,
    /// Whether the record before was from the future, too.
    was_future_before: bool,
}

enum Liveness {
    Alive,
    Suspect,
    Expired,
}

impl Liveness {
    /// Returns the liveness of a server with this last heartbeat.
    fn from_heartbeat(last_heartbeat: Timestamp, now: Timestamp) -> Self {
        match now.since(last_heartbeat) {
            silence if silence <= ALIVE_TTL => Self::Alive,
            silence if silence > RECORD_TTL => Self::Expired,
            _ => Self::Suspect,
        }
    }
}

impl FutureRecords {
    fn liveness(&mut self, id: ServerId, heartbeat_micros: u64, now: Timestamp) -> Liveness {
        let last_heartbeat = Timestamp::from_micros(heartbeat_micros);
        let earlier = self.0.get(&id);
        if earlier.is_none_or(|record| record.heartbeat_micros != heartbeat_micros) {
            let was_future_before = earlier.is_some();
            if last_heartbeat.since(now) <= MAX_CLOCK_SKEW {
                self.0.remove(&id);
                return Liveness::from_heartbeat(last_heartbeat, now);
            }
            if !was_future_before {
                warn_of_future(id, last_heartbeat.since(now));
            }
            self.0.insert(
                id,
                FutureRecord {
                    heartbeat_micros,
                    first_read: now,
                    was_future_before,
                },
            );
        }
        let record = &self.0[&id];
        match Liveness::from_heartbeat(record.first_read, now) {
            Liveness::Alive if !record.was_future_before => Liveness::Suspect,
            liveness => liveness,
        }
    }
}

fn warn_of_future(server: ServerId, ahead: Duration) {
    warn!(
        %server,
        seconds = ahead.as_secs(),
        "the last heartbeat of a server is in the future: the clock of redis was set back, or another redis took over. The \
         server counts as gone until its next heartbeat"
    );
}

/// Returns the members of these records, with their partitions, and the servers to remove. A record
/// that cannot be read is ignored: its server assigns partitions in another way.
pub(super) fn members_from_records(
    records: Vec<(String, String)>,
    partitions: u16,
    future_records: &mut FutureRecords,
    now: Timestamp,
) -> Members {
    let mut members = Members::default();
    let mut seen = Vec::new();
    for (id, record) in records.into_iter().take(MAX_MEMBERS) {
        let (Ok(id), Ok(record)) = (
            id.parse::<ServerId>(),
            serde_json::from_str::<MemberRecord>(&record),
        ) else {
            continue;
        };
        seen.push(id);
        match future_records.liveness(id, record.heartbeat_micros, now) {
            Liveness::Alive => {
                members.cannot_publish |= record.cannot_publish;
                members.alive.push(record.into_member(id));
            }
            Liveness::Suspect => {}
            Liveness::Expired => members.expired.push(id),
        }
    }
    future_records.0.retain(|id, _| seen.contains(id));
    share_out(partitions, &mut members.alive);
    members
}

/// Assigns the partitions of a store to its members.
fn share_out(partitions: u16, alive: &mut [Member]) {
    let ids: Vec<ServerId> = alive.iter().map(|server| server.id).collect();
    for (partition, assigned_to) in (0..).zip(assign_partitions(partitions, &ids)) {
        let mut servers = alive.iter_mut();
        servers
            .find(|server| server.id == assigned_to)
            .expect("homes are shared out among them")
            .partitions
            .push(Partition(partition));
    }
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
    fn only_servers_with_a_recent_heartbeat_have_partitions() {
        let unknown = (ServerId(9).to_string(), "?".to_owned());
        let entries = vec![
            entry(1, 100),
            entry(2, 95),
            entry(3, 90),
            entry(4, 30),
            unknown,
        ];
        let members = members_from_records(entries, 16, &mut FutureRecords::default(), at(100));
        let found: Vec<_> = members
            .alive
            .iter()
            .map(|server| (server.id.0, server.partitions.len()))
            .collect();
        assert_eq!(found, [(1, 8), (2, 8)]);
        assert_eq!(members.expired, [ServerId(4)]);
    }

    /// The clock of the store was ahead during their heartbeats.
    #[test]
    fn servers_from_the_future_have_partitions_after_their_next_heartbeat() {
        let mut future_records = FutureRecords::default();
        let mut check = |now: u64, others: [u64; 3], living: &[u64], gone: &[u64]| {
            let entries = [
                entry(1, now),
                entry(2, others[0]),
                entry(3, others[1]),
                entry(4, others[2]),
            ];
            let members = members_from_records(entries.into(), 16, &mut future_records, at(now));
            let found: Vec<_> = members.alive.iter().map(|server| server.id.0).collect();
            assert_eq!(found, living, "at {now}");
            assert_eq!(
                members
                    .expired
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
