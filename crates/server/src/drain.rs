//! The drain of a server: from the signal to stop until its ports close.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use crate::net::bounds::Bounds;

/// Interval between two checks for open connections.
const LOOK: Duration = Duration::from_millis(50);

/// Origin of the signal to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A process manager (SIGTERM). Clients may still send calls, since they learn of the end
    /// later.
    Manager,
    /// A person at a terminal (SIGINT). New clients are not expected any more.
    Terminal,
}

/// The drain delay: after the signal, health reports the end while the server still serves calls.
#[derive(Debug)]
pub(crate) struct Delay<'s> {
    pub(crate) length: Duration,
    /// Ports for calls, whose connections are counted.
    pub(crate) ports: &'s [Bounds],
}

impl Delay<'_> {
    /// Returns when the ports may close: after the delay, or at a second signal. After SIGINT, it
    /// also returns as soon as no client is connected.
    pub(crate) async fn pass(&self, stop: Stop, asked: &mut impl AsyncFnMut() -> Stop) {
        let length = self.length;
        match stop {
            _ if length.is_zero() => info!("draining"),
            Stop::Terminal if !self.is_connected() => {
                return info!("draining: no client is connected");
            }
            // A person needs the reason for the delay, and its length.
            Stop::Terminal => {
                warn!(
                    "draining: calls are answered for {length:?} more, since a client is connected; a second signal ends this"
                );
            }
            Stop::Manager => {
                info!("draining: calls are answered for {length:?} more; a second signal ends this")
            }
        }
        tokio::select! {
            () = sleep(length) => {}
            () = self.deserted(), if stop == Stop::Terminal => info!("no client is connected any more"),
            _ = asked() => info!("a second signal ends the delay"),
        }
    }

    fn is_connected(&self) -> bool {
        self.ports.iter().any(|port| port.sample().open > 0)
    }

    /// Returns when no client is connected.
    async fn deserted(&self) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.is_connected() {
            looks.tick().await;
        }
    }
}
