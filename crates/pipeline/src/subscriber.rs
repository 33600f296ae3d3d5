//! A subscription to published messages that outlives connections, and reports when it may have
//! missed some.

mod channel_registry;
mod event;
mod mailbox;
mod options;
mod session;

pub use event::{Refusal, SubscriberEvent};
pub use options::{Delivery, SubscriberOptions};

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

use crate::client::Client;
use channel_registry::ChannelRegistry;
use mailbox::{ChannelState, Mailbox};
use session::{Session, SessionEvent, SessionReport, SubscriptionOrder};

/// Subscribes to channels, on separate connections: one to each node that has any of them.
///
/// Redis keeps no message for a disconnected subscriber, so no subscription is complete. This one
/// reports where it may have gaps: at every [`SubscriberEvent::Subscribed`], including the first,
/// and at every [`SubscriberEvent::Missed`]. A reader that reads the current state at each of them
/// misses nothing for longer than a connection is down.
///
/// It reconnects automatically, with the delays of [`Config`](crate::Config), and follows channels
/// whose slot moves and primaries that are replaced. A connection that is silent for
/// [`Config::stall_timeout`](crate::Config::stall_timeout), at most 5 s, gets a PING, and is closed
/// after the same time without an answer. It keeps its client open. Dropping it ends its
/// connections.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = tidegate_pipeline::test_util::RedisServer::start().await;
/// use tidegate_pipeline::{Client, Config, Delivery, Subscriber, SubscriberEvent, SubscriberOptions};
///
/// let client = Client::new(Config::single(server.address()))?;
/// let mut subscriber = Subscriber::new(&client, ["news"], SubscriberOptions::new(Delivery::Broadcast));
/// let Some(SubscriberEvent::Subscribed { channel }) = subscriber.next().await else { panic!() };
/// assert_eq!(channel, "news"); // look at what was published before
/// # Ok(()) }
/// ```
pub struct Subscriber {
    mailbox: Arc<Mailbox>,
    channels: watch::Sender<HashSet<Bytes>>,
    _stop: DropGuard,
}

impl Subscriber {
    /// Subscribes on the runtime of `client`, to the same servers.
    pub fn new(
        client: &Client,
        channels: impl IntoIterator<Item = impl Into<Bytes>>,
        options: SubscriberOptions,
    ) -> Self {
        let (channels, wanted) = watch::channel(channels.into_iter().map(Into::into).collect());
        let mailbox = Arc::new(Mailbox::new(&options));
        let sender = Arc::clone(client.sender());
        let context = sender.context.clone();
        let stop = context.stop.child_token();
        let registry = ChannelRegistry::new(sender, options, wanted, mailbox.clone(), stop.clone());
        context.spawn(stop.clone(), registry.run());
        Self {
            mailbox,
            channels,
            _stop: stop.drop_guard(),
        }
    }

    /// Replaces the channels. The ones that stay continue without a gap.
    pub fn set_channels(&self, channels: impl IntoIterator<Item = impl Into<Bytes>>) {
        self.channels
            .send_replace(channels.into_iter().map(Into::into).collect());
    }

    /// Returns the next event. `None` after the client was closed.
    ///
    /// Events of channels and of missed messages precede queued messages, even older ones: a reader
    /// that reads the state at such an event sees what those messages would report.
    ///
    /// # Cancellation
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<SubscriberEvent> {
        self.mailbox.next().await
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("channels", &self.channels.borrow().len())
            .finish_non_exhaustive()
    }
}
