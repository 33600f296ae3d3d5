//! This server among the servers of its store: who they are, and at which of them each partition is at home. Home is a preference, and never
//! a right: a store takes a change from whoever knows the state.

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

/// Timers that are due within this time are announced to the home of their partition. It finds later ones itself: it looks every
/// [`super::sweep::POLL_INTERVAL`] at what is due within [`super::sweep::LOOKAHEAD`].
const SOON: Duration = Duration::from_secs(26);

/// What a server says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerDescription {
    /// The version of its program.
    pub version: String,
    /// Where its API listens, for people.
    pub address: String,
}

/// What a server asks for when it says that it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatQuery {
    /// The store's time.
    StoreTime,
    /// Nothing more than who else lives.
    MembersOnly,
}

/// A server of the store that has said lately that it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name, until it ends.
    pub id: ServerId,
    /// What it says about itself.
    pub about: ServerDescription,
    /// When it began.
    pub began: Timestamp,
    /// When it last said that it lives.
    pub last_heartbeat: Timestamp,
    /// Since when workers could reach all partitions through it, if it says.
    pub served_since: Option<Timestamp>,
    /// The partitions that are at home there.
    pub partitions: Vec<Partition>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) announcer: Notifier,
    pub(crate) mine: Arc<LocalPartitions>,
    known: Mutex<MemberView>,
    /// Whether it has joined the others.
    joined: AtomicBool,
    /// Redis does not let it tell others what it writes.
    cannot_publish: AtomicBool,
    /// Notified when the servers of the store may be others.
    changed: Notify,
    hearing: Subscribed,
}

/// What is heard of other servers.
#[derive(Debug, Default)]
struct Subscribed {
    /// All that this server listens to now.
    base: AtomicBool,
    /// Also what is meant for servers at which a worker waits.
    waiting: AtomicBool,
    /// Some server cannot tell what it writes.
    peer_cannot_publish: AtomicBool,
    /// Why Redis does not let it listen.
    refused: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct MemberView {
    began: Option<Timestamp>,
    living: Vec<Member>,
    /// Servers that were not heard of for long.
    gone: Vec<ServerId>,
    /// Servers whose entries are from the future.
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

    /// Redis does not let this server tell others what it writes. They hear that with its next entry, and then look for themselves.
    fn set_mute(&self, mute: bool) {
        if self.cannot_publish.swap(mute, Relaxed) != mute {
            self.changed.notify_one();
        }
    }

    /// A topic is not heard, because Redis does not let this server listen, or for now.
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
    /// Tells the other servers of the store that this one lives, and takes its share of the partitions. Returns the store's time, if it was
    /// asked for and is told. To be called every two seconds or so: who is not heard of for six is thought gone.
    ///
    /// # Errors
    /// The store does not answer. Then all stays as it was.
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
        // A store that is full takes no entry. The others do not count on this server then, which does no harm.
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
            // Its entry was gone: the store may have lost everything. If that cannot be found out now, the next look does.
            let _later = self.look_around().await;
        }
        self.learn_of_gaps(&roster, now);
        if self.settle_among(roster, now) {
            self.store().call_out(home.server(), Broadcast::Look).await;
        }
        Ok(roll.time)
    }

    /// Time in which another server served is no gap, although this server did not serve then.
    fn learn_of_gaps(&self, roster: &Members, now: Timestamp) {
        /// How far the clocks of two servers may be apart.
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

    /// Takes this server's share among these. Returns whether others are to look, because what this server wrote was not announced to them.
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

    /// Leaves the other servers: they share its partitions out at once.
    pub async fn leave(&self) {
        let home = &self.core.context.home;
        if home.joined.swap(false, Relaxed) {
            // Whoever does not hear of it finds out by its silence.
            let _later = self
                .store()
                .servers(None, &[home.server()], HeartbeatQuery::MembersOnly)
                .await;
            self.store()
                .call_out(home.server(), Broadcast::Servers)
                .await;
        }
    }

    /// The servers of the store, as this server knows them; empty where there is only one.
    #[must_use]
    pub fn servers(&self) -> Vec<Member> {
        self.core.context.home.known().living.clone()
    }

    /// Reads the servers of the store, without being one of them.
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

    /// How many changes were made again, because another server had changed the workflow.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.core.context.conflicts.load(Relaxed)
    }

    /// How many partitions are at home here.
    #[must_use]
    pub fn home_partitions(&self) -> usize {
        self.core.context.home.mine.each().count()
    }

    /// How often a worker that waited was woken, because there may be a job for it.
    #[must_use]
    pub fn wake_ups(&self) -> u64 {
        self.queues().wake_ups()
    }

    /// The name of this server.
    #[must_use]
    pub fn server(&self) -> ServerId {
        self.core.context.home.server()
    }
}
