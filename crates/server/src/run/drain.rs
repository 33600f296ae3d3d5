//! The drain of a server: from the signal to stop until its ports close.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::info;

use crate::net::bounds::PortBounds;
use crate::telemetry::logging::LIFECYCLE;

/// Interval between two checks for open connections.
const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Origin of the signal to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopSignal {
    /// A process manager (SIGTERM). Clients may still send calls, since they learn of the end
    /// later.
    Manager,
    /// A person at a terminal (SIGINT). New clients are not expected any more.
    Terminal,
}

/// The drain delay: after the signal, health reports the end while the server still serves calls.
#[derive(Debug)]
pub(crate) struct DrainDelay<'s> {
    pub(crate) length: Duration,
    /// Ports for calls, whose connections are counted.
    pub(crate) ports: &'s [PortBounds],
}

impl DrainDelay<'_> {
    /// Returns when the ports may close: after the delay, or at a second signal. After SIGINT, it
    /// also returns as soon as no client is connected.
    pub(crate) async fn wait(
        &self,
        stop: StopSignal,
        next_stop: &mut impl AsyncFnMut() -> StopSignal,
    ) {
        let length = self.length;
        match stop {
            _ if length.is_zero() => info!(target: LIFECYCLE, "draining"),
            StopSignal::Terminal if !self.is_connected() => {
                return info!(target: LIFECYCLE, "draining: no client is connected");
            }
            // A person needs the reason for the delay, and its length.
            StopSignal::Terminal => info!(
                target: LIFECYCLE,
                "draining for up to {length:?}, since a client is connected; Ctrl-C again stops now"
            ),
            StopSignal::Manager => info!(
                target: LIFECYCLE,
                "draining: calls are answered for {length:?} more; a second signal stops now"
            ),
        }
        tokio::select! {
            () = sleep(length) => {}
            () = self.until_no_clients(), if stop == StopSignal::Terminal => info!(target: LIFECYCLE, "no client is connected any more"),
            _ = next_stop() => info!(target: LIFECYCLE, "a second signal ends the delay"),
        }
    }

    fn is_connected(&self) -> bool {
        self.ports.iter().any(|port| port.sample().open > 0)
    }

    /// Returns when no client is connected.
    async fn until_no_clients(&self) {
        let mut checks = interval(CONNECTION_CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.is_connected() {
            checks.tick().await;
        }
    }
}
