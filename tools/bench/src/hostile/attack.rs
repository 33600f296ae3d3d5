//! The attacks: what each is, how large, and what it needs of its server.

use std::fmt;
use std::future::Future;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::anyhow;
use clap::ValueEnum;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::calls;
use super::connections;
use super::flood;
use super::frames::{self, Kind};
use super::page;
use super::target::{Target, scaled};

/// What somebody does to hurt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Attack {
    /// 10,000 connections that say nothing.
    Idle,
    /// 1,000 connections with a call that arrives a byte a second.
    Slow,
    /// 200 connections that reset every call.
    Resets,
    /// 50 connections that send calls and read nothing.
    NoRead,
    /// 8 connections that open and reset streams as fast as they can.
    RapidReset,
    /// 8 connections with headers without an end.
    Headers,
    /// 50 connections with messages of 64 KiB that unpack to 10 MB.
    Bomb,
    /// Ten requests a second of 4 MiB of descriptors.
    Large,
    /// The same with descriptors of which one limit replaces another.
    LargeReplaces,
    /// 10,000 unknown domains of 100 kB.
    Domains,
    /// A page of 10,000 names in metrics a second.
    Scrape,
    /// 1,000,000 keys of a day where there is room for 100,000, beside 1,000 exhausted keys of a minute.
    FloodDay,
    /// The same with keys of the same limit as the exhausted ones.
    FloodMinute,
    /// 60 bodies of 4 MiB for `/json` that stop.
    Bodies,
    /// 40 readers of a large workflow that read nothing.
    Readers,
}

/// The longest that an attack with an end may take beyond the measured time.
const END: Duration = Duration::from_secs(60);

impl fmt::Display for Attack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        formatter.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// Where the counters of an attack's server are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counters {
    Redis,
    /// In memory, with room for this many.
    Memory(usize),
}

/// An attack in progress.
pub(super) struct Attacking {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<anyhow::Result<()>>,
    has_end: bool,
}

impl Attacking {
    /// Ends it, or waits for its end if it has one.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        if !self.has_end {
            // It may have ended by itself.
            let _ = self.stop.send(());
        }
        self.thread
            .join()
            .map_err(|_| anyhow!("the attacker panicked"))?
    }
}

impl Attack {
    pub(super) fn all() -> &'static [Self] {
        Self::value_variants()
    }

    pub(super) fn counters(self, scale: f64) -> Counters {
        match self {
            Self::FloodDay | Self::FloodMinute => Counters::Memory(scaled(100_000, scale)),
            _ => Counters::Redis,
        }
    }

    /// Whether it ends by itself when it is done.
    const fn has_end(self) -> bool {
        matches!(self, Self::Domains | Self::FloodDay | Self::FloodMinute)
    }

    /// How long it takes to be under way, before healthy callers are measured beside it.
    pub(super) const fn rise(self) -> Duration {
        match self {
            Self::Idle => Duration::from_secs(3),
            _ => Duration::ZERO,
        }
    }

    /// The pause before a connection that was closed is opened again.
    const fn pause(self) -> Duration {
        match self {
            // They do not hurt by their number in a second.
            Self::Idle => Duration::from_secs(1),
            _ => Duration::from_millis(50),
        }
    }

    /// What must be there before anything is measured.
    pub(super) async fn prepare(self, target: &mut Target) -> anyhow::Result<()> {
        match self {
            Self::Readers => target.make_workflow().await,
            Self::Scrape => Ok(page::make_names(target).await?),
            _ => Ok(()),
        }
    }

    /// Starts it on a thread of its own.
    pub(super) fn start(self, target: Target) -> Attacking {
        let (stop, stopped) = oneshot::channel();
        let main = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                tokio::select! {
                    ended = self.attack(target) => ended,
                    _ = stopped => Ok(()),
                }
            })
        };
        Attacking {
            stop,
            thread: std::thread::spawn(main),
            has_end: self.has_end(),
        }
    }

    /// Attacks until it is dropped, or done.
    async fn attack(self, target: Target) -> anyhow::Result<()> {
        match self {
            Self::Domains => to_its_end(calls::unknown_domains(&target)).await,
            Self::FloodDay => to_its_end(flood::keys(&target, "day")).await,
            Self::FloodMinute => to_its_end(flood::keys(&target, "minute")).await,
            _ => {
                self.connect_again(&target).await;
                Ok(())
            }
        }
    }

    /// As many connections as the attack has, each opened again when the server has closed it.
    async fn connect_again(self, target: &Target) {
        let connections = match self {
            Self::Idle => 10_000,
            Self::Slow => 1_000,
            Self::Resets => 200,
            Self::Bodies => 60,
            Self::NoRead | Self::Bomb => 50,
            Self::Readers => 40,
            Self::RapidReset | Self::Headers => 8,
            _ => 1,
        };
        let mut tasks = JoinSet::new();
        for _ in 0..scaled(connections, target.scale) {
            let target = target.clone();
            tasks.spawn(async move {
                loop {
                    // The server may refuse it, and end it whenever it likes.
                    if self.once(&target).await.is_err() {
                        target.gains.count("refused or cut");
                    }
                    sleep(self.pause()).await;
                }
            });
            // Connections come as fast as the server takes them, and not faster than its backlog.
            tokio::task::yield_now().await;
        }
        while tasks.join_next().await.is_some() {}
    }

    /// One connection, to its end.
    async fn once(self, target: &Target) -> std::io::Result<()> {
        match self {
            Self::Slow => connections::slow(target).await,
            Self::Resets => connections::resets(target).await,
            Self::NoRead => connections::no_read(target).await,
            Self::RapidReset => {
                connections::flood(target, |number| frames::reset(2 * number + 1)).await
            }
            Self::Headers => {
                let field = [&[0x00, 0x01, b'x', 0x7f, 0x81, 0x1f][..], &[b'y'; 4096]].concat();
                let next = |number| match number {
                    0 => frames::frame(Kind::Headers, 0, 1, frames::SHORT_HEAD),
                    _ => frames::frame(Kind::Continuation, 0, 1, &field),
                };
                connections::flood(target, next).await
            }
            Self::Bomb => calls::bombs(target).await,
            Self::Large => calls::large(target, &["key"]).await,
            Self::LargeReplaces => calls::large(target, &["first", "second"]).await,
            Self::Scrape => page::scrape(target).await,
            Self::Bodies => connections::stop_in_body(target).await,
            Self::Readers => connections::read_nothing(target).await,
            _ => connections::idle(target).await,
        }
    }
}

async fn to_its_end(attack: impl Future<Output = std::io::Result<()>>) -> anyhow::Result<()> {
    Ok(timeout(END, attack)
        .await
        .map_err(|_| anyhow!("it took more than {END:?}"))??)
}
