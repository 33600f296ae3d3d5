//! Receives the notifications of other servers, and reads the jobs that they announce.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use hashbrown::HashSet;
use tokio::time::{Instant, sleep_until};

use crate::engine::{Context, Engine};
use crate::model::{Partition, Timestamp};
use crate::queue::{Reach, RefillDepth, RefillTarget};
use crate::store::{Broadcast, ChangeNotice, ReadyQueues, StoreEvent, Subscription, Topic};

/// Poll interval of the first jobs of remote partitions while workers are busy here: older jobs
/// there go first after a while.
const REMOTE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Rows of each partition that such a poll reads.
const REMOTE_POLL_ROWS: usize = 8;
/// Interval at which a server without busy workers checks whether there are some.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Average interval at which a server checks again whether Redis lets it publish.
const PUBLISH_PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// Longest delay before a server reads jobs that became ready in a remote partition. The workers of
/// that partition's server go first. Without it, single jobs cost 2.8 times the refused writes and
/// 39 % more commands.
const REMOTE_READ_DELAY: Duration = Duration::from_micros(2_500);
/// Doublings of that delay while other servers are faster, so it is at most 20 ms. Without them,
/// single jobs cost 37 % more commands.
const MAX_DELAY_DOUBLINGS: u32 = 3;

/// Queues and partitions that must be read because of notifications.
#[derive(Debug, Default)]
struct PendingReads {
    queues: BTreeSet<RefillTarget>,
    partitions: BTreeSet<Partition>,
    read_at: Option<Instant>,
}

/// The loop that receives the notifications of other servers.
struct NotificationLoop<'a> {
    engine: &'a Engine,
    subscription: Subscription,
    topics: Vec<Topic>,
    subscribed: HashSet<Topic>,
    pending: PendingReads,
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
        self.listen_with_probe_interval(now, || {
            PUBLISH_PROBE_INTERVAL.mul_f64(0.75 + fastrand::f64() / 2.0)
        })
        .await;
    }

    async fn listen_with_probe_interval(
        &self,
        now: impl Fn() -> Timestamp,
        probe_interval: impl Fn() -> Duration,
    ) {
        loop {
            let subscription = self.store().subscribe();
            self.core
                .context
                .membership
                .set_cannot_publish(subscription.is_none());
            match subscription {
                Some(subscription) => tokio::select! {
                    () = self.run_notification_loop(subscription, &now) => return,
                    () = self.store().publish_changed(false, &probe_interval) => {}
                },
                None => self.store().publish_changed(true, &probe_interval).await,
            }
        }
    }

    async fn run_notification_loop(&self, subscription: Subscription, now: impl Fn() -> Timestamp) {
        let partitions = self.store().all_partitions().map(Topic::Partition);
        let topics: Vec<Topic> = [Topic::Servers].into_iter().chain(partitions).collect();
        subscription.set_topics(&topics);
        let mut notification_loop = NotificationLoop {
            engine: self,
            subscription,
            topics,
            subscribed: HashSet::new(),
            pending: PendingReads::default(),
            lost_races: 0,
        };
        let _unsubscribe = UnsubscribeGuard(self);
        notification_loop.run(now).await;
    }

    /// Announces to the other servers a change that is not of one workflow, such as a pause of a
    /// queue. The announcement may be lost.
    pub async fn broadcast_change(&self) {
        self.broadcast(Broadcast::Queues).await;
    }

    /// Waits for such an announcement of another server. Only one task at a time may wait.
    pub async fn next_broadcast(&self) {
        self.core.context.broadcast_received.notified().await;
    }

    /// Waits until the members of the store may have changed: [`Engine::heartbeat`] reads them.
    pub async fn members_changed(&self) {
        self.core
            .context
            .membership
            .members_changed
            .notified()
            .await;
    }

    /// Whether this server is notified of jobs that others make ready and of permits that they
    /// release, or there are no others.
    #[must_use]
    pub fn receives_notifications(&self) -> bool {
        let membership = &self.core.context.membership;
        membership.is_subscribed() || !membership.notifier.has_peers()
    }

    /// Sets whether the known ready jobs may be complete: they may if notifications arrive, or if
    /// there are no other servers.
    pub(super) fn update_queues_complete(&self) {
        self.queues()
            .set_notified_of_all(self.receives_notifications());
    }
}

/// Marks this server as not subscribed when it is dropped.
struct UnsubscribeGuard<'a>(&'a Engine);

impl Drop for UnsubscribeGuard<'_> {
    fn drop(&mut self) {
        self.0.core.context.membership.set_subscribed(false);
        self.0.update_queues_complete();
    }
}

impl<'a> NotificationLoop<'a> {
    fn context(&self) -> &'a Context {
        &self.engine.core.context
    }

    async fn run(&mut self, now: impl Fn() -> Timestamp) {
        let engine = self.engine;
        let mut tick = pin!(tokio::time::sleep(IDLE_POLL_INTERVAL));
        loop {
            let due = self.pending.read_at;
            tokio::select! {
                // All notifications that have arrived are handled before one read for all of them.
                biased;
                event = self.subscription.next() => match event {
                    Some(event) => self.on_event(event, now()).await,
                    None => return,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.read_pending().await,
                () = engine.queues().wait_for_claim() => tick.as_mut().reset(Instant::now() + REMOTE_POLL_INTERVAL),
                () = tick.as_mut() => {
                    engine.queues().advance(now());
                    let pause = if self.tick().await { REMOTE_POLL_INTERVAL } else { IDLE_POLL_INTERVAL };
                    tick.as_mut().reset(Instant::now() + pause);
                }
            }
        }
    }

    fn update_subscribed(&self) {
        let all = self
            .topics
            .iter()
            .all(|topic| self.subscribed.contains(topic));
        self.context().membership.set_subscribed(all);
        self.engine.update_queues_complete();
    }

    /// Reads the first jobs of remote partitions while workers are busy with local ones. Returns
    /// whether they are.
    async fn tick(&mut self) -> bool {
        let queues = self.engine.queues();
        let busy = queues.busy_queues();
        let shared = queues.has_remote_partitions();
        if !busy.is_empty() && shared {
            let remote = self.engine.partitions_in(Reach::Others);
            // The next poll finds the jobs that this one does not.
            let busy = RefillTarget::whole_queues(&busy);
            let _later = self
                .engine
                .refill(&busy, &remote, REMOTE_POLL_ROWS, RefillDepth::First)
                .await;
        }
        !busy.is_empty()
    }

    async fn on_event(&mut self, event: StoreEvent, now: Timestamp) {
        let engine = self.engine;
        engine.queues().advance(now);
        match event {
            StoreEvent::Subscribed(topic) => self.on_subscribed(topic, now),
            StoreEvent::Unsubscribed {
                topic,
                reason,
                refused,
            } => {
                self.subscribed.remove(&topic);
                self.update_subscribed();
                self.context()
                    .membership
                    .on_refused(refused.then_some(reason));
            }
            StoreEvent::Gap => self.on_gap_everywhere(now),
            StoreEvent::Broadcast(by, broadcast) if by != engine.server_id() => {
                self.on_broadcast(broadcast, now).await
            }
            StoreEvent::Announced(partition, notice) if notice.by != engine.server_id() => {
                self.on_announced(partition, notice)
            }
            StoreEvent::Released(release) if release.by != engine.server_id() => {
                engine.queues().unblock(&release.limit)
            }
            StoreEvent::Broadcast(..) | StoreEvent::Announced(..) | StoreEvent::Released(_) => {}
        }
    }

    fn on_subscribed(&mut self, topic: Topic, now: Timestamp) {
        self.subscribed.insert(topic);
        self.update_subscribed();
        match topic {
            Topic::Servers => self.context().membership.members_changed.notify_one(),
            Topic::Partition(partition) => self.on_gap(&[partition], now),
        }
    }

    async fn on_broadcast(&mut self, broadcast: Broadcast, now: Timestamp) {
        match broadcast {
            Broadcast::Servers => self.context().membership.members_changed.notify_one(),
            Broadcast::Resync => self.on_gap_everywhere(now),
            Broadcast::Queues => {
                self.context().broadcast_received.notify_one();
                // If this fails, the next poll repeats it.
                let _later = self.engine.read_names().await;
                self.engine.run_required_refills().await;
            }
        }
    }

    fn on_gap_everywhere(&mut self, now: Timestamp) {
        let all: Vec<Partition> = self.engine.store().all_partitions().collect();
        self.on_gap(&all, now);
    }

    /// Handles missed notifications: anything may have happened in these partitions.
    fn on_gap(&mut self, partitions: &[Partition], now: Timestamp) {
        let context = self.context();
        // Freed permits are announced, refunded units of rate limits are not. So any set may be
        // free.
        context.queues.unblock_concurrency_limits();
        for &partition in partitions {
            context.schedule_sweep(partition, now);
        }
        self.schedule_read(&ReadyQueues::AllQueues, partitions, REMOTE_READ_DELAY);
    }

    fn on_announced(&mut self, partition: Partition, notice: ChangeNotice) {
        let context = self.context();
        if let Some(due) = notice.due {
            context.schedule_sweep(partition, due);
        }
        let delay = if context.membership.local_partitions.contains(partition) {
            Duration::ZERO
        } else {
            let max_delay = REMOTE_READ_DELAY * (1 << self.lost_races.min(MAX_DELAY_DOUBLINGS));
            max_delay.mul_f64(fastrand::f64())
        };
        self.schedule_read(&notice.ready, &[partition], delay);
    }

    /// Schedules a read of jobs that became ready in these partitions, after `delay`.
    fn schedule_read(&mut self, ready: &ReadyQueues, partitions: &[Partition], delay: Duration) {
        let wanted = self.engine.queues().wanted_refills(ready);
        if !wanted.is_empty() {
            self.pending.queues.extend(wanted);
            self.pending.partitions.extend(partitions);
            let at = Instant::now() + delay;
            self.pending.read_at = Some(self.pending.read_at.map_or(at, |other| other.min(at)));
        }
    }

    async fn read_pending(&mut self) {
        let PendingReads {
            queues, partitions, ..
        } = std::mem::take(&mut self.pending);
        let queues: Vec<RefillTarget> = queues.into_iter().collect();
        let partitions: Vec<Partition> = partitions.into_iter().collect();
        match self.engine.refill_announced(&queues, &partitions).await {
            Ok(0) => self.lost_races = (self.lost_races + 1).min(MAX_DELAY_DOUBLINGS),
            Ok(_) => self.lost_races = 0,
            // The next poll reads the jobs again, or the first read after the store answers again.
            Err(_) => self.engine.queues().mark_all_incomplete(),
        }
    }
}

#[cfg(test)]
mod with_redis {
    use std::time::Instant;

    use tidegate_pipeline::Client;
    use tidegate_pipeline::test_util::RedisServer;

    use super::*;
    use crate::engine::{EngineOptions, ServerDescription};
    use crate::store::{HeartbeatQuery, RedisOptions, RedisStore, Store};

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
        let listen = |engine: Engine| async move {
            engine
                .listen_with_probe_interval(now, || Duration::from_millis(20))
                .await
        };
        let _listening = [
            tokio::spawn(listen(one.clone())),
            tokio::spawn(listen(other.clone())),
        ]
        .map(Aborted);
        beat(&one).await;
        beat(&other).await;
        beat(&one).await;
        assert!(!one.receives_notifications() && !other.receives_notifications());
        acl("allchannels");
        until(|| one.store().subscribe().is_some() && other.store().subscribe().is_some()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        beat(&one).await;
        beat(&other).await;
        beat(&one).await;
        until(|| one.receives_notifications() && other.receives_notifications()).await;
        // The other server must notice that it may not publish any more.
        acl("-spublish");
        until(|| other.store().subscribe().is_none()).await;
        until(|| !other.receives_notifications()).await;
    }

    /// A server must report at once that it cannot publish, not after its next check a minute
    /// later.
    #[tokio::test]
    async fn a_server_that_cannot_publish_reports_it() {
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
        while one.store().subscribe().is_some() {
            assert!(
                begin.elapsed() < Duration::from_secs(10),
                "it does not notice"
            );
            let graph = crate::graph::Definition {
                name: "w".to_owned(),
                jobs: vec![crate::graph::JobDefinition::new("a", "handler")],
                ..Default::default()
            };
            let graph = crate::graph::Graph::build(graph).unwrap();
            let begin = crate::engine::actor::request::StartMode::Now;
            let new = crate::engine::NewWorkflow {
                graph,
                start: begin,
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
