//! The end of a server that was asked to end, up to the moment when its ports close.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use crate::net::bounds::Bounds;

/// How often it is looked whether anybody is connected.
const LOOK: Duration = Duration::from_millis(50);

/// Who asks the server to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A program that manages servers (SIGTERM). Others may still send calls here, since they hear of the end later.
    Manager,
    /// A person at a terminal (SIGINT). Whoever is not connected now is not expected any more.
    Terminal,
}

/// The time after a signal in which the server says that it is about to end, and serves on.
#[derive(Debug)]
pub(crate) struct Delay<'s> {
    pub(crate) length: Duration,
    /// The ports to which calls come.
    pub(crate) ports: &'s [Bounds],
}

impl Delay<'_> {
    /// Returns when the server may close its ports: after the delay, at a second signal, or, for a person at a terminal, as soon as nobody
    /// is connected.
    pub(crate) async fn pass(&self, stop: Stop, asked: &mut impl AsyncFnMut() -> Stop) {
        let length = self.length;
        match stop {
            _ if length.is_zero() => info!("draining"),
            Stop::Terminal if !self.is_connected() => {
                return info!("draining: nobody is connected");
            }
            // For a person, who would otherwise see nothing for that long.
            Stop::Terminal => {
                warn!(
                    "draining: calls are answered for {length:?} more, since somebody is connected; a second signal ends this"
                );
            }
            Stop::Manager => {
                info!("draining: calls are answered for {length:?} more; a second signal ends this")
            }
        }
        tokio::select! {
            () = sleep(length) => {}
            () = self.deserted(), if stop == Stop::Terminal => info!("nobody is connected any more"),
            _ = asked() => info!("a second signal ends the delay"),
        }
    }

    fn is_connected(&self) -> bool {
        self.ports.iter().any(|port| port.sample().open > 0)
    }

    /// Returns when nobody is connected.
    async fn deserted(&self) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.is_connected() {
            looks.tick().await;
        }
    }
}
