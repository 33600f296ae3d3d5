//! The membership of this server: which servers use the store, and which partitions are assigned to
//! each. An assignment is a preference, and never a right: a store takes a change from any server
//! that knows the state.

mod assignment;
mod members;
pub(crate) mod notifications;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::warn;

use self::members::{FutureRecords, MemberRecord, Members, members_from_records};
use super::Engine;
use crate::codec::StoreError;
use crate::model::{Partition, Timestamp};
use crate::queue::LocalPartitions;
use crate::store::{Broadcast, HeartbeatQuery, Notifier, ServerId};

/// Timers that are due within this time are announced to the server of their partition. That server
/// finds later timers itself: every [`super::sweep::POLL_INTERVAL`], it reads the timers that are
/// due within [`super::sweep::LOOKAHEAD`].
const TIMER_NOTICE_HORIZON: Duration = Duration::from_secs(26);

/// Description of a server, which the others can read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerDescription {
    /// Version of the server.
    pub version: String,
    /// Address of its API, for people.
    pub address: String,
}

/// A server of the store with a recent heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Id of the server, until its process ends.
    pub id: ServerId,
    /// Description of the server.
    pub description: ServerDescription,
    /// Time of its start.
    pub started_at: Timestamp,
    /// Time of its last heartbeat.
    pub last_heartbeat: Timestamp,
    /// Time since which workers could reach all partitions through it, if it reports that.
    pub served_since: Option<Timestamp>,
    /// Partitions that are assigned to it.
    pub partitions: Vec<Partition>,
}

/// Membership of this server, and its view of the other members.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) notifier: Notifier,
    pub(crate) local_partitions: Arc<LocalPartitions>,
    view: Mutex<MemberView>,
    /// Whether this server has joined the others.
    joined: AtomicBool,
    /// Whether Redis refuses the announcements of this server.
    cannot_publish: AtomicBool,
    /// Notified when the members of the store may have changed.
    members_changed: Notify,
    subscribed: Subscribed,
}

/// Notifications of other servers that this server receives.
#[derive(Debug, Default)]
struct Subscribed {
    /// Whether all topics are subscribed.
    all: AtomicBool,
    /// Whether some member cannot announce its writes.
    peer_cannot_publish: AtomicBool,
    /// Reason why Redis refuses subscriptions, if it does.
    refused: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct MemberView {
    started_at: Option<Timestamp>,
    alive: Vec<Member>,
    /// Servers whose records have expired. The next heartbeat removes these records.
    expired: Vec<ServerId>,
    /// Servers whose records are from the future.
    future_records: FutureRecords,
}

impl Membership {
    pub(crate) fn new(partitions: u16) -> Self {
        Self {
            notifier: Notifier::new(ServerId(fastrand::u64(1..)), partitions),
            local_partitions: Arc::new(LocalPartitions::all(partitions)),
            view: Mutex::default(),
            joined: AtomicBool::new(false),
            cannot_publish: AtomicBool::new(false),
            members_changed: Notify::new(),
            subscribed: Subscribed::default(),
        }
    }

    fn view(&self) -> MutexGuard<'_, MemberView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server_id(&self) -> ServerId {
        self.notifier.server
    }

    fn set_subscribed(&self, all: bool) {
        self.subscribed.all.store(all, Relaxed);
    }

    fn is_subscribed(&self) -> bool {
        self.subscribed.all.load(Relaxed) && !self.subscribed.peer_cannot_publish.load(Relaxed)
    }

    /// Sets whether Redis refuses the announcements of this server. The other members learn that
    /// from its next record, and poll from then on.
    fn set_cannot_publish(&self, cannot_publish: bool) {
        if self.cannot_publish.swap(cannot_publish, Relaxed) != cannot_publish {
            self.members_changed.notify_one();
        }
    }

    /// Logs the first reason why Redis refuses a subscription. `None` if a topic was unsubscribed
    /// for another reason.
    fn on_refused(&self, refused: Option<String>) {
        let Some(reason) = refused else { return };
        let mut logged = self
            .subscribed
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if logged.is_none() {
            warn!(
                reason,
                "redis does not let this server listen to others of its store, so it looks for their jobs four times a second: allow SUBSCRIBE \
                 and SSUBSCRIBE with the channels of its prefix (docs/redis-keys.md)"
            );
            *logged = Some(reason);
        }
    }

    fn record_json(
        &self,
        description: &ServerDescription,
        served_since: Option<Timestamp>,
        now: Timestamp,
    ) -> String {
        let started_at = *self.view().started_at.get_or_insert(now);
        let record = MemberRecord {
            heartbeat_micros: now.micros(),
            started_micros: started_at.micros(),
            description: description.clone(),
            cannot_publish: self.cannot_publish.load(Relaxed),
            served_since_micros: served_since.map(Timestamp::micros),
        };
        serde_json::to_string(&record).expect("texts and numbers are JSON")
    }

    fn set_members(&self, alive: Vec<Member>, expired: Vec<ServerId>) {
        let mut view = self.view();
        view.alive = alive;
        view.expired = expired;
    }
}

impl Engine {
    /// Writes a heartbeat of this server, and updates its share of the partitions. Returns the time
    /// of the store, if `query` requests it and the store has a clock. Must be called about every
    /// two seconds: a server without a heartbeat for six seconds counts as gone.
    ///
    /// # Errors
    /// The store does not answer. Then nothing changes.
    pub async fn heartbeat(
        &self,
        description: &ServerDescription,
        now: Timestamp,
        query: HeartbeatQuery,
    ) -> Result<Option<Timestamp>, StoreError> {
        self.queues().advance(now);
        let membership = &self.core.context.membership;
        let record = self.own_record(description, now);
        let expired = membership.view().expired.clone();
        let Some(stored) = self
            .store()
            .heartbeat(Some((membership.server_id(), &record)), &expired, query)
            .await?
        else {
            return Ok(None);
        };
        let records = with_own(stored.entries, membership.server_id(), record);
        let members = members_from_records(
            records,
            self.store().partitions(),
            &mut membership.view().future_records,
            now,
        );
        if !membership.joined.swap(true, Relaxed) {
            self.broadcast(Broadcast::Servers).await;
        } else if stored.is_new {
            // Its record was gone: the store may have lost everything. If the check fails now, the
            // next one finds out.
            let _later = self.poll_store().await;
        }
        self.shorten_gaps(&members, now);
        if self.update_share(members, now) {
            self.broadcast(Broadcast::Resync).await;
        }
        Ok(stored.time)
    }

    /// The record of this server in the store, as JSON.
    fn own_record(&self, description: &ServerDescription, now: Timestamp) -> String {
        let context = &self.core.context;
        let is_healthy = context.store_health.is_healthy();
        let served_since = context.served_since.all_since();
        let served_since = served_since.map(|since| if is_healthy { since } else { now });
        context
            .membership
            .record_json(description, served_since, now)
    }

    /// Sends a message to the other servers.
    async fn broadcast(&self, message: Broadcast) {
        self.store().broadcast(self.server_id(), message).await;
    }

    /// Shortens the gaps of this server: while another server served all partitions, there was no
    /// gap.
    fn shorten_gaps(&self, members: &Members, now: Timestamp) {
        /// Most difference between the clocks of two servers.
        const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);
        let context = &self.core.context;
        let own = context.membership.server_id();
        for other in &members.alive {
            if other.id != own
                && other.last_heartbeat <= now + MAX_CLOCK_SKEW
                && let Some(since) = other.served_since
            {
                context.served_since.merge_peer(other.last_heartbeat, since);
            }
        }
    }

    /// Updates this server's share of the partitions. Returns whether other servers must poll,
    /// because earlier writes of this server were not announced to them.
    fn update_share(
        &self,
        Members {
            alive,
            expired,
            cannot_publish,
        }: Members,
        now: Timestamp,
    ) -> bool {
        let context = &self.core.context;
        let membership = &context.membership;
        let assigned = partitions_of(membership.server_id(), &alive);
        let others = alive.len() > 1;
        let moved = self.assign_local(&assigned, now);
        let was_alone = !membership.notifier.has_peers();
        membership.notifier.set_has_peers(others);
        membership
            .subscribed
            .peer_cannot_publish
            .store(cannot_publish, Relaxed);
        membership.set_members(alive, expired);
        if moved {
            self.core
                .thread_map
                .rebalance(|partition| membership.local_partitions.contains(partition));
            self.queues().reclassify();
        }
        self.update_queues_complete();
        was_alone && others
    }

    /// Assigns these partitions to this server, and no others. Returns whether any has moved.
    fn assign_local(&self, assigned: &[Partition], now: Timestamp) -> bool {
        let context = &self.core.context;
        let membership = &context.membership;
        let mut moved = false;
        for partition in self.store().all_partitions() {
            let is_local = assigned.contains(&partition);
            membership
                .notifier
                .set_announce_before(partition, (!is_local).then_some(now + TIMER_NOTICE_HORIZON));
            if membership.local_partitions.assign(partition, is_local) {
                moved = true;
                context.schedule_sweep(partition, now);
            }
        }
        moved
    }

    /// Leaves the other servers, which share out its partitions at once.
    pub async fn leave(&self) {
        let membership = &self.core.context.membership;
        if membership.joined.swap(false, Relaxed) {
            // A server that misses the broadcast notices the missing heartbeats.
            let _later = self
                .store()
                .heartbeat(None, &[membership.server_id()], HeartbeatQuery::MembersOnly)
                .await;
            self.broadcast(Broadcast::Servers).await;
        }
    }

    /// Returns the members, as known to this server. Empty if no other server can use the store.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.core.context.membership.view().alive.clone()
    }

    /// Reads the members of the store without joining them.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn read_members(&self, now: Timestamp) -> Result<Vec<Member>, StoreError> {
        let stored = self
            .store()
            .heartbeat(None, &[], HeartbeatQuery::MembersOnly)
            .await?
            .unwrap_or_default();
        Ok(members_from_records(
            stored.entries,
            self.store().partitions(),
            &mut FutureRecords::default(),
            now,
        )
        .alive)
    }

    /// Returns the number of changes that were applied again, because another server had changed
    /// the workflow.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.core.context.conflicts.load(Relaxed)
    }

    /// Returns the number of partitions that are assigned to this server.
    #[must_use]
    pub fn assigned_partition_count(&self) -> usize {
        self.core.context.membership.local_partitions.iter().count()
    }

    /// Returns the number of times that a waiting worker was woken because there may be a job for
    /// it.
    #[must_use]
    pub fn wake_ups(&self) -> u64 {
        self.queues().wake_ups()
    }

    /// Returns the id of this server.
    #[must_use]
    pub fn server_id(&self) -> ServerId {
        self.core.context.membership.server_id()
    }
}

/// The partitions that are assigned to a member.
fn partitions_of(id: ServerId, alive: &[Member]) -> Vec<Partition> {
    let own = alive.iter().find(|server| server.id == id);
    own.map_or_else(Vec::new, |own| own.partitions.clone())
}

/// The stored records with the current one of this server. A full store takes no record. Then the
/// other servers do not count on this one, which does no harm.
fn with_own(
    mut records: Vec<(String, String)>,
    own: ServerId,
    record: String,
) -> Vec<(String, String)> {
    let own = own.to_string();
    records.retain(|(id, _)| *id != own);
    records.push((own, record));
    records
}
