//! What a server hears from the others, and what it looks at because of that.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use hashbrown::HashSet;
use tokio::time::{Instant, sleep_until};

use crate::engine::{Engine, queues};
use crate::id::Partition;
use crate::store::announcement::{Announcement, Audience, News};
use crate::store::ears::{CallOut, Ears, Heard, Topic};
use crate::time::Timestamp;

/// How often a server at which workers are busy looks at the first jobs of other homes: what is older there goes first after a while.
const GLANCE: Duration = Duration::from_secs(1);
/// How many of each partition.
const GLANCED: usize = 8;
/// How often a server at which no worker is busy looks whether one still waits.
const REST: Duration = Duration::from_secs(5);
/// How often Redis is asked again, on average, whether it lets this server tell others things.
const ASKED: Duration = Duration::from_secs(60);
/// The longest wait before a server looks at what became ready in a partition of another home, whose own workers go first.
const GIVES_WAY: Duration = Duration::from_micros(2_500);
/// How often that wait doubles while others are faster: up to 20 ms.
const DOUBLINGS: u32 = 3;

/// What is to be read because of what was heard.
#[derive(Debug, Default)]
struct ToRead {
    queues: BTreeSet<queues::ToRead>,
    partitions: BTreeSet<Partition>,
    at: Option<Instant>,
}

/// A server that listens.
struct Listener<'a> {
    engine: &'a Engine,
    ears: Ears,
    topics: Vec<Topic>,
    heard: HashSet<Topic>,
    /// Whether it listens to what is meant for servers at which a worker waits.
    attentive: bool,
    to_read: ToRead,
    /// How often in a row other servers were faster.
    late: u32,
}

impl Engine {
    /// Listens to other servers of the store, and reads what a worker here may want. Only one task at a time may listen, and until one does,
    /// what other servers do is found when somebody looks. Never returns where there is something to hear.
    ///
    /// # Cancellation
    /// What was heard and not looked at yet is found by the next look.
    pub async fn listen(&self, now: impl Fn() -> Timestamp) {
        self.listen_asking(now, || ASKED.mul_f64(0.75 + fastrand::f64() / 2.0))
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

    async fn hear(&self, ears: Ears, now: impl Fn() -> Timestamp) {
        let (topics, heard) = (Vec::new(), HashSet::new());
        let mut listener = Listener {
            engine: self,
            ears,
            topics,
            heard,
            attentive: false,
            to_read: ToRead::default(),
            late: 0,
        };
        let _deaf = Deaf(self);
        listener.choose_topics();
        listener.run(now).await;
    }

    /// Tells the other servers that something changed that is not of one workflow. Nobody may hear it.
    pub async fn call_out(&self) {
        self.store().call_out(self.server(), CallOut::Queues).await;
    }

    /// Returns when another server has said so. Only one task at a time may wait.
    pub async fn called_out(&self) {
        self.core.context.called_out.notified().await;
    }

    /// Returns when the servers of the store are others, or may be: [`Engine::beat`] finds out.
    pub async fn servers_changed(&self) {
        self.core.context.home.changed.notified().await;
    }

    /// Whether what other servers make ready is heard of as long as a worker waits, or there are no others.
    #[must_use]
    pub fn hears_others(&self) -> bool {
        let home = &self.core.context.home;
        home.hears() || !home.announcer.has_others()
    }

    /// Whether it is heard of places under limits that other servers free, or there are no others.
    pub(in crate::engine) fn hears_of_places(&self) -> bool {
        let home = &self.core.context.home;
        home.hears_all() || !home.announcer.has_others()
    }

    /// What is known of ready jobs is all there is if others are heard, or there are none.
    pub(super) fn trust_queues(&self) {
        self.queues().trust(self.hears_of_places());
    }
}

/// Nobody listens any more when this is dropped.
struct Deaf<'a>(&'a Engine);

impl Drop for Deaf<'_> {
    fn drop(&mut self) {
        self.0.core.context.home.set_hears(false, false);
        self.0.trust_queues();
    }
}

impl Listener<'_> {
    async fn run(&mut self, now: impl Fn() -> Timestamp) {
        let engine = self.engine;
        let mut tick = pin!(tokio::time::sleep(REST));
        loop {
            let due = self.to_read.at;
            tokio::select! {
                // All that has arrived is read about at once.
                biased;
                heard = self.ears.next() => match heard {
                    Some(heard) => self.take(heard, now()).await,
                    None => return,
                },
                () = engine.queues().is_waited_for() => {
                    self.attentive = true;
                    self.choose_topics();
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.read().await,
                () = engine.queues().is_worked_on() => tick.as_mut().reset(Instant::now() + GLANCE),
                () = tick.as_mut() => {
                    engine.queues().advance(now());
                    let pause = if self.tick(now()).await { GLANCE } else { REST };
                    tick.as_mut().reset(Instant::now() + pause);
                }
            }
        }
    }

    /// Listens to what is of use now.
    fn choose_topics(&mut self) {
        let audiences: &[Audience] = if self.attentive {
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
            .set_hears(all, all && self.attentive);
        self.engine.trust_queues();
    }

    /// Returns whether workers are busy with what is at home here.
    async fn tick(&mut self, now: Timestamp) -> bool {
        let queues = self.engine.queues();
        if self.attentive && !queues.expects_workers(now) {
            self.attentive = false;
            self.choose_topics();
        }
        let (busy, shared) = (queues.busy(), queues.are_shared());
        if !busy.is_empty() && shared {
            let mine = &self.engine.core.context.home.mine;
            let away: Vec<Partition> = self
                .engine
                .store()
                .all_partitions()
                .filter(|at| !mine.has(*at))
                .collect();
            // The next glance finds what this one does not.
            let busy: Vec<queues::ToRead> =
                busy.iter().cloned().map(queues::ToRead::from).collect();
            let _later = self.engine.refill_in(&busy, &away, GLANCED).await;
        }
        !busy.is_empty()
    }

    async fn take(&mut self, heard: Heard, now: Timestamp) {
        let engine = self.engine;
        engine.queues().advance(now);
        match heard {
            Heard::Listening(topic) => {
                self.heard.insert(topic);
                self.note_hearing();
                match topic {
                    Topic::Servers => engine.core.context.home.changed.notify_one(),
                    Topic::Partition(partition, _) => self.missed(&[partition], now),
                }
            }
            Heard::Deaf {
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
                    .note_deaf(refused.then_some(reason));
            }
            Heard::Missed => self.missed(&engine.store().all_partitions().collect::<Vec<_>>(), now),
            Heard::Called(by, call) if by != engine.server() => self.called(call, now).await,
            Heard::Announced(partition, said) if said.by != engine.server() => {
                self.announced(partition, said)
            }
            Heard::Released(release) if release.by != engine.server() => {
                engine.queues().open(&release.set)
            }
            Heard::Called(..) | Heard::Announced(..) | Heard::Released(_) => {}
        }
    }

    async fn called(&mut self, call: CallOut, now: Timestamp) {
        match call {
            CallOut::Servers => self.engine.core.context.home.changed.notify_one(),
            CallOut::Look => self.missed(
                &self.engine.store().all_partitions().collect::<Vec<_>>(),
                now,
            ),
            // Else the next look does it.
            CallOut::Queues => {
                self.engine.core.context.called_out.notify_one();
                let _names = self.engine.read_names().await;
                let _found = self.engine.refill(&self.engine.queues().failed()).await;
            }
        }
    }

    /// Anything may have happened in these partitions.
    fn missed(&mut self, partitions: &[Partition], now: Timestamp) {
        let context = &self.engine.core.context;
        // Of units that return to rate limits nobody tells.
        context.queues.open_sets();
        for &partition in partitions {
            context.expect_by(partition, now);
        }
        self.look_for(&News::AllQueues, partitions, GIVES_WAY);
    }

    fn announced(
        &mut self,
        partition: Partition,
        Announcement {
            ready, due, taken, ..
        }: Announcement,
    ) {
        let context = &self.engine.core.context;
        if context.home.mine.has(partition) {
            self.engine.queues().note_taken(&taken);
        }
        due.into_iter()
            .for_each(|due| context.expect_by(partition, due));
        let pause = match context.home.mine.has(partition) {
            true => Duration::ZERO,
            false => {
                let longest = GIVES_WAY * (1 << self.late.min(DOUBLINGS));
                longest.mul_f64(fastrand::f64())
            }
        };
        self.look_for(&ready, &[partition], pause);
    }

    /// Reads after a pause what of these became ready in partitions.
    fn look_for(&mut self, ready: &News, partitions: &[Partition], pause: Duration) {
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
            Ok(0) => self.late = (self.late + 1).min(DOUBLINGS),
            Ok(_) => self.late = 0,
            // It is read again by the next look, or when the store answers again.
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
    use crate::engine::home::{AboutServer, Asks};
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
            .beat(&AboutServer::default(), now(), Asks::Nothing)
            .await
            .unwrap();
    }

    /// It asked when it opened the store, and never again.
    #[tokio::test]
    async fn what_redis_permits_may_change() {
        let redis = RedisServer::start().await;
        let acl =
            |rule: &str| assert_eq!(redis.raw(&format!("ACL SETUSER default {rule}")), "+OK\r\n");
        acl("resetchannels");
        let (one, other) = (open(&redis).await, open(&redis).await);
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
        assert!(!one.hears_others() && !other.hears_others());
        acl("allchannels");
        until(|| one.store().listen().is_some() && other.store().listen().is_some()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        beat(&one).await;
        beat(&other).await;
        beat(&one).await;
        until(|| one.hears_others() && other.hears_others()).await;
        // Now only the other one is told that it may not.
        acl("-spublish");
        until(|| other.store().listen().is_none()).await;
        until(|| !other.hears_others()).await;
    }

    /// A server that does not wait for its minute: what it writes is not told.
    #[tokio::test]
    async fn a_server_that_is_not_heard_any_more_says_so() {
        let redis = RedisServer::start().await;
        let (one, other) = (open(&redis).await, open(&redis).await);
        let listening = one.clone();
        let _one = Aborted(tokio::spawn(async move { listening.listen(now).await }));
        let listening = other.clone();
        let _other = Aborted(tokio::spawn(async move { listening.listen(now).await }));
        beat(&one).await;
        beat(&other).await;
        beat(&one).await;
        until(|| other.hears_others()).await;
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
            let begin = crate::engine::desk::request::Begin::Now;
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
        assert!(!other.hears_others(), "it looks for itself");
    }

    struct Aborted(tokio::task::JoinHandle<()>);

    impl Drop for Aborted {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
}
