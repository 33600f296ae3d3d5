//! The membership of this server: which servers use the store, and which partitions are assigned to
//! each. An assignment is a preference, and never a right: a store takes a change from any server
//! that knows the state.

mod assignment;
mod members;
pub(crate) mod notifications;
pub(crate) mod partitions;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::warn;

use self::members::{FutureRecords, MemberRecord, Members, roster};
use self::partitions::LocalPartitions;
use super::Engine;
use crate::id::Partition;
use crate::store::change_notice::{Notifier, ServerId};
use crate::store::error::StoreError;
use crate::store::subscription::Broadcast;
use crate::time::Timestamp;

/// Timers that are due within this time are announced to the server of their partition. That server
/// finds later timers itself: every [`super::sweep::POLL_INTERVAL`], it reads the timers that are
/// due within [`super::sweep::LOOKAHEAD`].
const SOON: Duration = Duration::from_secs(26);

/// Description of a server, which the others can read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerDescription {
    /// Version of the server.
    pub version: String,
    /// Address of its API, for people.
    pub address: String,
}

/// Query of a heartbeat, besides the members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatQuery {
    /// The time of the store.
    StoreTime,
    /// The members only.
    MembersOnly,
}

/// A server of the store with a recent heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Id of the server, until its process ends.
    pub id: ServerId,
    /// Description of the server.
    pub about: ServerDescription,
    /// Time of its start.
    pub began: Timestamp,
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
    pub(crate) announcer: Notifier,
    pub(crate) mine: Arc<LocalPartitions>,
    known: Mutex<MemberView>,
    /// Whether this server has joined the others.
    joined: AtomicBool,
    /// Whether Redis refuses the announcements of this server.
    cannot_publish: AtomicBool,
    /// Notified when the members of the store may have changed.
    changed: Notify,
    hearing: Subscribed,
}

/// Notifications of other servers that this server receives.
#[derive(Debug, Default)]
struct Subscribed {
    /// Whether all topics of this server are subscribed.
    base: AtomicBool,
    /// Whether the topics for servers with waiting workers are subscribed, too.
    waiting: AtomicBool,
    /// Whether some member cannot announce its writes.
    peer_cannot_publish: AtomicBool,
    /// Reason why Redis refuses subscriptions, if it does.
    refused: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct MemberView {
    began: Option<Timestamp>,
    living: Vec<Member>,
    /// Servers whose records have expired. The next heartbeat removes these records.
    gone: Vec<ServerId>,
    /// Servers whose records are from the future.
    ahead: FutureRecords,
}

impl Membership {
    pub(super) fn new(partitions: u16) -> Self {
        let announcer = Notifier::new(ServerId(fastrand::u64(1..)), partitions);
        let mine = Arc::new(LocalPartitions::all(partitions));
        let known = Mutex::default();
        let joined = AtomicBool::new(false);
        let cannot_publish = AtomicBool::new(false);
        Self {
            announcer,
            mine,
            known,
            joined,
            cannot_publish,
            changed: Notify::new(),
            hearing: Subscribed::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, MemberView> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server(&self) -> ServerId {
        self.announcer.server
    }

    fn set_hears(&self, well: bool, all: bool) {
        self.hearing.base.store(well, Relaxed);
        self.hearing.waiting.store(all, Relaxed);
    }

    fn hears(&self) -> bool {
        self.hearing.base.load(Relaxed) && !self.hearing.peer_cannot_publish.load(Relaxed)
    }

    fn hears_all(&self) -> bool {
        self.hearing.waiting.load(Relaxed) && !self.hearing.peer_cannot_publish.load(Relaxed)
    }

    /// Sets whether Redis refuses the announcements of this server. The other members learn that
    /// from its next record, and poll from then on.
    fn set_mute(&self, mute: bool) {
        if self.cannot_publish.swap(mute, Relaxed) != mute {
            self.changed.notify_one();
        }
    }

    /// Logs the first reason why Redis refuses a subscription. `None` if a topic was unsubscribed
    /// for another reason.
    fn on_refused(&self, refused: Option<String>) {
        let Some(reason) = refused else { return };
        let mut known = self
            .hearing
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            warn!(
                reason,
                "redis does not let this server listen to others of its store, so it looks for their jobs four times a second: allow SUBSCRIBE \
                 and SSUBSCRIBE with the channels of its prefix (docs/redis-keys.md)"
            );
            *known = Some(reason);
        }
    }

    fn entry(
        &self,
        about: &ServerDescription,
        served_since: Option<Timestamp>,
        now: Timestamp,
    ) -> String {
        let began = *self.known().began.get_or_insert(now);
        let mute = self.cannot_publish.load(Relaxed);
        let served = served_since.map(Timestamp::micros);
        let entry = MemberRecord {
            at: now.micros(),
            began: began.micros(),
            about: about.clone(),
            cannot_publish: mute,
            served,
        };
        serde_json::to_string(&entry).expect("texts and numbers are JSON")
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
        about: &ServerDescription,
        now: Timestamp,
        asks: HeartbeatQuery,
    ) -> Result<Option<Timestamp>, StoreError> {
        self.queues().advance(now);
        let home = &self.core.context.home;
        let troubles = &self.core.context.troubles;
        let served = self
            .core
            .context
            .served
            .all_since()
            .map(|since| if troubles.is_none() { since } else { now });
        let entry = home.entry(about, served, now);
        let gone = home.known().gone.clone();
        let Some(roll) = self
            .store()
            .servers(Some((home.server(), &entry)), &gone, asks)
            .await?
        else {
            return Ok(None);
        };
        let mut entries = roll.entries;
        // A full store takes no record. Then the other servers do not count on this one, which does
        // no harm.
        let own = home.server().to_string();
        entries.retain(|(id, _)| *id != own);
        entries.push((own, entry));
        let roster = roster(
            entries,
            self.store().partitions(),
            &mut home.known().ahead,
            now,
        );
        let joins = !home.joined.swap(true, Relaxed);
        if joins {
            self.store()
                .call_out(home.server(), Broadcast::Servers)
                .await;
        } else if roll.anew {
            // Its record was gone: the store may have lost everything. If the check fails now, the
            // next one finds out.
            let _later = self.look_around().await;
        }
        self.learn_of_gaps(&roster, now);
        if self.settle_among(roster, now) {
            self.store().call_out(home.server(), Broadcast::Look).await;
        }
        Ok(roll.time)
    }

    /// Shortens the gaps of this server: while another server served all partitions, there was no
    /// gap.
    fn learn_of_gaps(&self, roster: &Members, now: Timestamp) {
        /// Most difference between the clocks of two servers.
        const MAX_CLOCK_SKEW: Duration = Duration::from_secs(1);
        let own = self.core.context.home.server();
        for other in roster
            .living
            .iter()
            .filter(|other| other.id != own && other.last_heartbeat <= now + MAX_CLOCK_SKEW)
        {
            if let Some(since) = other.served_since {
                self.core.context.served.learn(other.last_heartbeat, since);
            }
        }
    }

    /// Updates this server's share of the partitions. Returns whether other servers must poll,
    /// because earlier writes of this server were not announced to them.
    fn settle_among(
        &self,
        Members {
            living,
            gone,
            cannot_publish: mute,
        }: Members,
        now: Timestamp,
    ) -> bool {
        let context = &self.core.context;
        let home = &context.home;
        let own = living.iter().find(|server| server.id == home.server());
        let homes: Vec<Partition> = own.map(|own| own.partitions.clone()).unwrap_or_default();
        let others = living.len() > 1;
        let mut moved = false;
        for partition in self.store().all_partitions() {
            let is_mine = homes.contains(&partition);
            home.announcer
                .set_soon(partition, (!is_mine).then_some(now + SOON));
            if home.mine.assign(partition, is_mine) {
                moved = true;
                context.expect_by(partition, now);
            }
        }
        let was_alone = !home.announcer.has_others();
        home.announcer.set_others(others);
        home.hearing.peer_cannot_publish.store(mute, Relaxed);
        {
            let mut known = home.known();
            known.living = living;
            known.gone = gone;
        }
        if moved {
            self.core
                .spread
                .rebalance(|partition| home.mine.contains(partition));
            self.queues().sort_out();
        }
        self.trust_queues();
        was_alone && others
    }

    /// Leaves the other servers, which share out its partitions at once.
    pub async fn leave(&self) {
        let home = &self.core.context.home;
        if home.joined.swap(false, Relaxed) {
            // A server that misses the broadcast notices the missing heartbeats.
            let _later = self
                .store()
                .servers(None, &[home.server()], HeartbeatQuery::MembersOnly)
                .await;
            self.store()
                .call_out(home.server(), Broadcast::Servers)
                .await;
        }
    }

    /// Returns the members, as known to this server. Empty if no other server can use the store.
    #[must_use]
    pub fn servers(&self) -> Vec<Member> {
        self.core.context.home.known().living.clone()
    }

    /// Reads the members of the store without joining them.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn read_servers(&self, now: Timestamp) -> Result<Vec<Member>, StoreError> {
        let roll = self
            .store()
            .servers(None, &[], HeartbeatQuery::MembersOnly)
            .await?
            .unwrap_or_default();
        Ok(roster(
            roll.entries,
            self.store().partitions(),
            &mut FutureRecords::default(),
            now,
        )
        .living)
    }

    /// Returns the number of changes that were applied again, because another server had changed
    /// the workflow.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.core.context.conflicts.load(Relaxed)
    }

    /// Returns the number of partitions that are assigned to this server.
    #[must_use]
    pub fn home_partitions(&self) -> usize {
        self.core.context.home.mine.each().count()
    }

    /// Returns the number of times that a waiting worker was woken because there may be a job for
    /// it.
    #[must_use]
    pub fn wake_ups(&self) -> u64 {
        self.queues().wake_ups()
    }

    /// Returns the id of this server.
    #[must_use]
    pub fn server(&self) -> ServerId {
        self.core.context.home.server()
    }
}
