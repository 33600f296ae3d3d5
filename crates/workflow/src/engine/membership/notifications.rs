//! Receives the notifications of other servers, and reads the jobs that they announce.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use hashbrown::HashSet;
use tokio::time::{Instant, sleep_until};

use crate::engine::{Engine, queues};
use crate::id::Partition;
use crate::store::change_notice::{Audience, ChangeNotice, ReadyQueues};
use crate::store::subscription::{Broadcast, StoreEvent, Subscription, Topic};
use crate::time::Timestamp;

/// Poll interval of the first jobs of remote partitions while workers are busy here: older jobs
/// there go first after a while.
const REMOTE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Rows of each partition that such a poll reads.
const REMOTE_POLL_ROWS: usize = 8;
/// Interval at which a server without busy workers checks whether one still waits.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Average interval at which a server checks again whether Redis lets it publish.
const PUBLISH_PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// Longest delay before a server reads jobs that became ready in a remote partition. The workers of
/// that partition's server go first.
const REMOTE_READ_DELAY: Duration = Duration::from_micros(2_500);
/// Doublings of that delay while other servers are faster, so it is at most 20 ms.
const DOUBLINGS: u32 = 3;

/// Queues and partitions that must be read because of notifications.
#[derive(Debug, Default)]
struct ToRead {
    queues: BTreeSet<queues::RefillTarget>,
    partitions: BTreeSet<Partition>,
    at: Option<Instant>,
}

/// The loop that receives the notifications of other servers.
struct NotificationLoop<'a> {
    engine: &'a Engine,
    ears: Subscription,
    topics: Vec<Topic>,
    heard: HashSet<Topic>,
    /// Whether the topics for servers with waiting workers are included.
    includes_waiting: bool,
    to_read: ToRead,
    /// Number of consecutive reads that found nothing, because other servers were faster.
    lost_races: u32,
}

impl Engine {
    /// Receives notifications of other servers, and reads jobs that a worker here may want. Only
    /// one task at a time may listen. Until one does, changes by other servers are found by
    /// polling. Returns only when a subscription ends.
    ///
    /// # Cancellation
    /// Notifications that were received and not handled yet are found by the next poll.
    pub async fn listen(&self, now: impl Fn() -> Timestamp) {
        self.listen_asking(now, || {
            PUBLISH_PROBE_INTERVAL.mul_f64(0.75 + fastrand::f64() / 2.0)
        })
        .await;
    }

    async fn listen_asking(&self, now: impl Fn() -> Timestamp, apart: impl Fn() -> Duration) {
        loop {
            let ears = self.store().listen();
            self.core.context.home.set_mute(ears.is_none());
            match ears {
                Some(ears) => tokio::select! {
                    () = self.hear(ears, &now) => return,
                    () = self.store().until_voice(false, &apart) => {}
                },
                None => self.store().until_voice(true, &apart).await,
            }
        }
    }

    async fn hear(&self, ears: Subscription, now: impl Fn() -> Timestamp) {
        let topics = Vec::new();
        let heard = HashSet::new();
        let mut listener = NotificationLoop {
            engine: self,
            ears,
            topics,
            heard,
            includes_waiting: false,
            to_read: ToRead::default(),
            lost_races: 0,
        };
        let _deaf = UnsubscribeGuard(self);
        listener.choose_topics();
        listener.run(now).await;
    }

    /// Announces to the other servers a change that is not of one workflow, such as a pause of a
    /// queue. The announcement may be lost.
    pub async fn call_out(&self) {
        self.store()
            .call_out(self.server(), Broadcast::Queues)
            .await;
    }

    /// Waits for such an announcement of another server. Only one task at a time may wait.
    pub async fn next_broadcast(&self) {
        self.core.context.called_out.notified().await;
    }

    /// Waits until the members of the store may have changed: [`Engine::heartbeat`] reads them.
    pub async fn servers_changed(&self) {
        self.core.context.home.changed.notified().await;
    }

    /// Whether this server is notified of jobs that others make ready while a worker waits, or
    /// there are no others.
    #[must_use]
    pub fn receives_notifications(&self) -> bool {
        let home = &self.core.context.home;
        home.hears() || !home.announcer.has_others()
    }

    /// Whether this server is notified of permits that others release, or there are no others.
    pub(in crate::engine) fn receives_releases(&self) -> bool {
        let home = &self.core.context.home;
        home.hears_all() || !home.announcer.has_others()
    }

    /// Sets whether the known ready jobs may be complete: they may if notifications arrive, or if
    /// there are no other servers.
    pub(super) fn trust_queues(&self) {
        self.queues().trust(self.receives_releases());
    }
}

/// Marks this server as not subscribed when it is dropped.
struct UnsubscribeGuard<'a>(&'a Engine);

impl Drop for UnsubscribeGuard<'_> {
    fn drop(&mut self) {
        self.0.core.context.home.set_hears(false, false);
        self.0.trust_queues();
    }
}

impl NotificationLoop<'_> {
    async fn run(&mut self, now: impl Fn() -> Timestamp) {
        let engine = self.engine;
        let mut tick = pin!(tokio::time::sleep(IDLE_POLL_INTERVAL));
        loop {
            let due = self.to_read.at;
            tokio::select! {
                // All notifications that have arrived are handled before one read for all of them.
                biased;
                heard = self.ears.next() => match heard {
                    Some(heard) => self.on_event(heard, now()).await,
                    None => return,
                },
                () = engine.queues().is_waited_for() => {
                    self.includes_waiting = true;
                    self.choose_topics();
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.read().await,
                () = engine.queues().is_worked_on() => tick.as_mut().reset(Instant::now() + REMOTE_POLL_INTERVAL),
                () = tick.as_mut() => {
                    engine.queues().advance(now());
                    let pause = if self.tick(now()).await { REMOTE_POLL_INTERVAL } else { IDLE_POLL_INTERVAL };
                    tick.as_mut().reset(Instant::now() + pause);
                }
            }
        }
    }

    /// Subscribes to the topics that are useful now.
    fn choose_topics(&mut self) {
        let audiences: &[Audience] = if self.includes_waiting {
            &[Audience::All, Audience::Waiting]
        } else {
            &[Audience::All]
        };
        let partitions = self.engine.store().all_partitions();
        let about = partitions.flat_map(|at| {
            audiences
                .iter()
                .map(move |audience| Topic::Partition(at, *audience))
        });
        self.topics = [Topic::Servers].into_iter().chain(about).collect();
        self.heard.retain(|topic| self.topics.contains(topic));
        self.ears.listen_to(&self.topics);
        self.note_hearing();
    }

    fn note_hearing(&self) {
        let all = self.topics.iter().all(|topic| self.heard.contains(topic));
        self.engine
            .core
            .context
            .home
            .set_hears(all, all && self.includes_waiting);
        self.engine.trust_queues();
    }

    /// Returns whether workers are busy with jobs of local partitions.
    async fn tick(&mut self, now: Timestamp) -> bool {
        let queues = self.engine.queues();
        if self.includes_waiting && !queues.expects_workers(now) {
            self.includes_waiting = false;
            self.choose_topics();
        }
        let busy = queues.busy();
        let shared = queues.are_shared();
        if !busy.is_empty() && shared {
            let mine = &self.engine.core.context.home.mine;
            let away: Vec<Partition> = self
                .engine
                .store()
                .all_partitions()
                .filter(|at| !mine.contains(*at))
                .collect();
            // The next poll finds the jobs that this one does not.
            let busy: Vec<queues::RefillTarget> = busy
                .iter()
                .cloned()
                .map(queues::RefillTarget::from)
                .collect();
            let _later = self.engine.refill_in(&busy, &away, REMOTE_POLL_ROWS).await;
        }
        !busy.is_empty()
    }

    async fn on_event(&mut self, heard: StoreEvent, now: Timestamp) {
        let engine = self.engine;
        engine.queues().advance(now);
        match heard {
            StoreEvent::Subscribed(topic) => {
                self.heard.insert(topic);
                self.note_hearing();
                match topic {
                    Topic::Servers => engine.core.context.home.changed.notify_one(),
                    Topic::Partition(partition, _) => self.missed(&[partition], now),
                }
            }
            StoreEvent::Unsubscribed {
                topic,
                reason,
                refused,
            } => {
                self.heard.remove(&topic);
                self.note_hearing();
                engine
                    .core
                    .context
                    .home
                    .on_refused(refused.then_some(reason));
            }
            StoreEvent::Gap => {
                self.missed(&engine.store().all_partitions().collect::<Vec<_>>(), now)
            }
            StoreEvent::Broadcast(by, call) if by != engine.server() => {
                self.called(call, now).await
            }
            StoreEvent::Announced(partition, said) if said.by != engine.server() => {
                self.announced(partition, said)
            }
            StoreEvent::Released(release) if release.by != engine.server() => {
                engine.queues().unblock(&release.set)
            }
            StoreEvent::Broadcast(..) | StoreEvent::Announced(..) | StoreEvent::Released(_) => {}
        }
    }

    async fn called(&mut self, call: Broadcast, now: Timestamp) {
        match call {
            Broadcast::Servers => self.engine.core.context.home.changed.notify_one(),
            Broadcast::Look => self.missed(
                &self.engine.store().all_partitions().collect::<Vec<_>>(),
                now,
            ),
            // If these reads fail, the next poll repeats them.
            Broadcast::Queues => {
                self.engine.core.context.called_out.notify_one();
                let _names = self.engine.read_names().await;
                let _found = self.engine.refill(&self.engine.queues().failed()).await;
            }
        }
    }

    /// Handles missed notifications: anything may have happened in these partitions.
    fn missed(&mut self, partitions: &[Partition], now: Timestamp) {
        let context = &self.engine.core.context;
        // Freed permits are announced, refunded units of rate limits are not. So any set may be
        // free.
        context.queues.open_sets();
        for &partition in partitions {
            context.expect_by(partition, now);
        }
        self.schedule_read(&ReadyQueues::AllQueues, partitions, REMOTE_READ_DELAY);
    }

    fn announced(
        &mut self,
        partition: Partition,
        ChangeNotice {
            ready, due, taken, ..
        }: ChangeNotice,
    ) {
        let context = &self.engine.core.context;
        if context.home.mine.contains(partition) {
            self.engine.queues().on_remote_claim(&taken);
        }
        due.into_iter()
            .for_each(|due| context.expect_by(partition, due));
        let pause = if context.home.mine.contains(partition) {
            Duration::ZERO
        } else {
            let longest = REMOTE_READ_DELAY * (1 << self.lost_races.min(DOUBLINGS));
            longest.mul_f64(fastrand::f64())
        };
        self.schedule_read(&ready, &[partition], pause);
    }

    /// Schedules a read of jobs that became ready in these partitions, after a pause.
    fn schedule_read(&mut self, ready: &ReadyQueues, partitions: &[Partition], pause: Duration) {
        let wanted = self.engine.queues().wanted(ready);
        if !wanted.is_empty() {
            self.to_read.queues.extend(wanted);
            self.to_read.partitions.extend(partitions);
            let at = Instant::now() + pause;
            self.to_read.at = Some(self.to_read.at.map_or(at, |other| other.min(at)));
        }
    }

    async fn read(&mut self) {
        let ToRead {
            queues, partitions, ..
        } = std::mem::take(&mut self.to_read);
        let (queues, partitions): (Vec<_>, Vec<_>) = (
            queues.into_iter().collect(),
            partitions.into_iter().collect(),
        );
        match self.engine.refill_news(queues, &partitions).await {
            Ok(0) => self.lost_races = (self.lost_races + 1).min(DOUBLINGS),
            Ok(_) => self.lost_races = 0,
            // The next poll reads the jobs again, or the first read after the store answers again.
            Err(_) => self.engine.queues().doubt_all(),
        }
    }
}

#[cfg(test)]
mod with_redis {
    use std::time::Instant;

    use tidegate_pipeline::Client;
    use tidegate_pipeline::test_util::RedisServer;

    use super::*;
    use crate::engine::EngineOptions;
    use crate::engine::membership::{HeartbeatQuery, ServerDescription};
    use crate::store::Store;
    use crate::store::redis::{RedisOptions, RedisStore};

    fn now() -> Timestamp {
        Timestamp::from_micros(1_795_000_000_000_000)
    }

    async fn until(done: impl Fn() -> bool) {
        let begin = Instant::now();
        while !done() {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "it does not come about"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn open(redis: &RedisServer) -> Engine {
        let options = RedisOptions::new("t:", 4, Duration::from_secs(5)).unwrap();
        let store = RedisStore::open(Client::new(redis.config()).unwrap(), options)
            .await
            .unwrap();
        Engine::start(Store::Redis(store), EngineOptions::default())
            .await
            .unwrap()
    }

    async fn beat(engine: &Engine) {
        engine
            .heartbeat(
                &ServerDescription::default(),
                now(),
                HeartbeatQuery::MembersOnly,
            )
            .await
            .unwrap();
    }

    /// Permissions were checked when the store was opened, and never again.
    #[tokio::test]
    async fn what_redis_permits_may_change() {
        let redis = RedisServer::start().await;
        let acl =
            |rule: &str| assert_eq!(redis.raw(&format!("ACL SETUSER default {rule}")), "+OK\r\n");
        acl("resetchannels");
        let one = open(&redis).await;
        let other = open(&redis).await;
        let asks = |engine: Engine| async move {
            engine
                .listen_asking(now, || Duration::from_millis(20))
                .await
        };
        let _listening = [
            tokio::spawn(asks(one.clone())),
            tokio::spawn(asks(other.clone())),
        ]
        .map(Aborted);
        beat(&one).await;
        beat(&other).await;
        beat(&one).await;
        assert!(!one.receives_notifications() && !other.receives_notifications());
        acl("allchannels");
        until(|| one.store().listen().is_some() && other.store().listen().is_some()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        beat(&one).await;
        beat(&other).await;
        beat(&one).await;
        until(|| one.receives_notifications() && other.receives_notifications()).await;
        // The other server must notice that it may not publish any more.
        acl("-spublish");
        until(|| other.store().listen().is_none()).await;
        until(|| !other.receives_notifications()).await;
    }

    /// A server must report at once that it cannot publish, not after its next check a minute
    /// later.
    #[tokio::test]
    async fn a_server_that_is_not_heard_any_more_says_so() {
        let redis = RedisServer::start().await;
        let one = open(&redis).await;
        let other = open(&redis).await;
        let listening = one.clone();
        let _one = Aborted(tokio::spawn(async move { listening.listen(now).await }));
        let listening = other.clone();
        let _other = Aborted(tokio::spawn(async move { listening.listen(now).await }));
        beat(&one).await;
        beat(&other).await;
        beat(&one).await;
        until(|| other.receives_notifications()).await;
        assert_eq!(redis.raw("ACL SETUSER default -spublish"), "+OK\r\n");
        let begin = Instant::now();
        while one.store().listen().is_some() {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "it does not notice"
            );
            let graph = crate::graph::definition::Definition {
                name: "w".to_owned(),
                jobs: vec![crate::graph::definition::JobDefinition::new("a", "handler")],
                ..Default::default()
            };
            let graph = crate::graph::Graph::build(graph).unwrap();
            let begin = crate::engine::actor::request::StartMode::Now;
            let new = crate::engine::create::NewWorkflow {
                graph,
                begin,
                created_at: None,
            };
            assert!(one.create(vec![new], now()).await[0].is_ok());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        beat(&one).await;
        beat(&other).await;
        assert!(!other.receives_notifications(), "it looks for itself");
    }

    struct Aborted(tokio::task::JoinHandle<()>);

    impl Drop for Aborted {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
}
