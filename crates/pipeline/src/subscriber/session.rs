//! One connection of a subscriber.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::Mailbox;
use crate::config::Address;
use crate::link::handshake;
use crate::link::{ClientContext, Probe, ReadySocket, Socket};
use crate::outcome::{Outcome, Rejection};
use crate::subscriber::Delivery;
use crate::wire::resp;
use crate::wire::{Incoming, Protocol, Push, ServerError, push_array, push_bulk};

/// Bytes of one read: a burst of small messages.
const READ_BYTES: usize = 16 * 1024;

/// Maximum silence before a PING is sent. Long stall timeouts are for calls, and no call waits for
/// a subscriber.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// Order of the registry to a session.
#[derive(Debug)]
pub(super) enum SubscriptionOrder {
    Subscribe(Bytes),
    Unsubscribe(Bytes),
}

/// Report of a session to the registry.
#[derive(Debug)]
pub(super) struct SessionReport {
    pub(super) address: Address,
    /// Number of the session that reports.
    pub(super) session: u64,
    pub(super) event: SessionEvent,
}

#[derive(Debug)]
pub(super) enum SessionEvent {
    Subscribed(Bytes),
    /// The server ended this subscription: the slot of its channel moved.
    Unsubscribed(Bytes),
    /// The server answered with an error.
    Refused(Bytes, ServerError),
    /// The connection has ended, or could not be opened.
    Ended(String),
}

/// A subscriber's connection to one node: it takes orders and reports the results.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) address: Address,
    pub(super) context: Arc<ClientContext>,
    pub(super) delivery: Delivery,
    /// A message of more bytes ends the connection.
    pub(super) max_message_bytes: usize,
    pub(super) orders: mpsc::Receiver<SubscriptionOrder>,
    pub(super) reports: mpsc::Sender<SessionReport>,
    pub(super) mailbox: Arc<Mailbox>,
}

/// An open connection.
struct SessionConnection<'a> {
    session: &'a mut Session,
    socket: Socket,
    protocol: Protocol,
    buffer: BytesMut,
    /// Commands that are not answered yet, in order.
    pending: VecDeque<PendingCommand>,
    subscribed: HashSet<Bytes>,
    /// Time at which bytes last arrived.
    last_received: Instant,
}

enum PendingCommand {
    Subscribe(Bytes),
    Unsubscribe(Bytes),
    Ping,
}

impl Session {
    /// Connects and listens until the connection ends, and reports its end.
    pub(super) async fn run(mut self) {
        let reason = match self.open_and_listen().await {
            Ok(never) => match never {},
            Err(reason) => reason,
        };
        self.report(SessionEvent::Ended(reason)).await;
    }

    async fn open_and_listen(&mut self) -> Result<Infallible, String> {
        self.context.config.connect_pace.permit().await;
        let ReadySocket {
            socket,
            protocol,
            read,
            ..
        } = handshake::open(&self.address, &self.context, Probe::Ping).await?;
        let connection = SessionConnection {
            session: self,
            socket,
            protocol,
            buffer: read,
            pending: VecDeque::new(),
            subscribed: HashSet::new(),
            last_received: Instant::now(),
        };
        connection.listen().await
    }

    async fn report(&self, event: SessionEvent) {
        let report = SessionReport {
            address: self.address.clone(),
            session: self.id,
            event,
        };
        // Without a registry the subscriber was dropped, and this session ends soon.
        let _ = self.reports.send(report).await;
    }

    fn max_silence(&self) -> Duration {
        self.context.config.stall_timeout.min(MAX_SILENCE)
    }
}

impl SessionConnection<'_> {
    async fn listen(mut self) -> Result<Infallible, String> {
        loop {
            let silence = self.session.max_silence();
            let is_pinged = self
                .pending
                .iter()
                .any(|command| matches!(command, PendingCommand::Ping));
            let wake = self.last_received + if is_pinged { 2 * silence } else { silence };
            self.buffer.reserve(READ_BYTES);
            tokio::select! {
                // Arrived bytes come before the timer: after a pause of this process both are
                // ready.
                biased;
                read = self.socket.read_buf(&mut self.buffer) => self.on_read(read).await?,
                order = self.session.orders.recv() => match order {
                    Some(order) => self.execute(order).await?,
                    None => return Err("the subscriber was closed".to_owned()),
                },
                () = sleep_until(wake) => {
                    if is_pinged {
                        return Err(format!("no answer to PING for {silence:?}"));
                    }
                    self.send_command(PendingCommand::Ping).await?;
                }
            }
        }
    }

    async fn on_read(&mut self, read: io::Result<usize>) -> Result<(), String> {
        if read.map_err(|error| error.to_string())? == 0 {
            return Err("closed by the server".to_owned());
        }
        self.last_received = Instant::now();
        for incoming in resp::decode_incoming(self.protocol, &mut self.buffer)? {
            match incoming {
                Incoming::Push(fields) => {
                    // Later versions of Redis may push unknown messages.
                    if let Some(push) = Push::read(&fields) {
                        self.on_push(push).await?;
                    }
                }
                Incoming::Answer(answer) => self.on_answer(Outcome::from_answer(answer)).await?,
            }
        }
        if self.buffer.len() > self.session.max_message_bytes.max(READ_BYTES) {
            Err(format!(
                "a message of more than {} bytes",
                self.session.max_message_bytes
            ))
        } else {
            Ok(())
        }
    }

    async fn on_push(&mut self, push: Push) -> Result<(), String> {
        match push {
            Push::Message { channel, payload } => {
                if let Some(channel) = self.subscribed.get(&channel) {
                    self.session.mailbox.add_message(channel, &payload);
                }
            }
            Push::Subscribed(channel) => {
                let Some(PendingCommand::Subscribe(requested)) = self
                    .pending
                    .pop_front()
                    .filter(|requested| requested.is_for(&channel))
                else {
                    return Err("a subscription that was not asked for".to_owned());
                };
                self.subscribed.insert(requested.clone());
                self.session
                    .report(SessionEvent::Subscribed(requested))
                    .await;
            }
            Push::Unsubscribed(channel) => {
                if matches!(self.pending.front(), Some(PendingCommand::Unsubscribe(name)) if *name == channel)
                {
                    self.pending.pop_front();
                } else if let Some(channel) = self.subscribed.take(&channel) {
                    self.session
                        .report(SessionEvent::Unsubscribed(channel))
                        .await;
                }
            }
            Push::Pong => self.on_pong()?,
        }
        Ok(())
    }

    /// Handles an answer that is no push: an error, or the answer to PING.
    async fn on_answer(&mut self, outcome: Outcome) -> Result<(), String> {
        let error = match outcome {
            Outcome::Reply(_) => return self.on_pong(),
            Outcome::Rejected(rejected) if rejected.kind == Rejection::Unauthenticated => {
                return Err(rejected.to_string());
            }
            Outcome::Rejected(rejected) => ServerError {
                message: rejected.message,
            },
            Outcome::ServerError(error) => error,
            Outcome::NotSent(_) | Outcome::Unknown(_) => {
                return Err("an answer that is none".to_owned());
            }
        };
        match self.pending.pop_front() {
            Some(PendingCommand::Subscribe(channel)) => {
                self.session
                    .report(SessionEvent::Refused(channel, error))
                    .await
            }
            // The slot of its channel has moved already, and the subscription with it.
            Some(PendingCommand::Unsubscribe(_)) => {}
            Some(PendingCommand::Ping) | None => return Err(error.to_string()),
        }
        Ok(())
    }

    fn on_pong(&mut self) -> Result<(), String> {
        match self.pending.pop_front() {
            Some(PendingCommand::Ping) => Ok(()),
            _ => Err("an answer that was not asked for".to_owned()),
        }
    }

    async fn execute(&mut self, order: SubscriptionOrder) -> Result<(), String> {
        match order {
            SubscriptionOrder::Subscribe(channel) => {
                self.send_command(PendingCommand::Subscribe(channel)).await
            }
            SubscriptionOrder::Unsubscribe(channel) => {
                self.subscribed.remove(&channel);
                self.send_command(PendingCommand::Unsubscribe(channel))
                    .await
            }
        }
    }

    /// Writes one command. Each channel has its own command, so that an error is about one channel.
    async fn send_command(&mut self, command: PendingCommand) -> Result<(), String> {
        let (name, channel): (&[u8], _) = match (&command, self.session.delivery) {
            (PendingCommand::Ping, _) => (b"PING", None),
            (PendingCommand::Subscribe(channel), Delivery::Broadcast) => {
                (b"SUBSCRIBE", Some(channel))
            }
            (PendingCommand::Subscribe(channel), Delivery::Sharded) => {
                (b"SSUBSCRIBE", Some(channel))
            }
            (PendingCommand::Unsubscribe(channel), Delivery::Broadcast) => {
                (b"UNSUBSCRIBE", Some(channel))
            }
            (PendingCommand::Unsubscribe(channel), Delivery::Sharded) => {
                (b"SUNSUBSCRIBE", Some(channel))
            }
        };
        let mut encoded = Vec::new();
        push_array(&mut encoded, 1 + usize::from(channel.is_some()));
        push_bulk(&mut encoded, name);
        if let Some(channel) = channel {
            push_bulk(&mut encoded, channel);
        }
        self.pending.push_back(command);
        let socket = &mut self.socket;
        let write = async {
            socket.write_all(&encoded).await?;
            socket.flush().await
        };
        match timeout(self.session.max_silence(), write).await {
            Ok(wrote) => wrote.map_err(|error| error.to_string()),
            Err(_) => Err(format!(
                "it read nothing for {:?}",
                self.session.max_silence()
            )),
        }
    }
}

impl PendingCommand {
    fn is_for(&self, channel: &Bytes) -> bool {
        matches!(self, Self::Subscribe(name) if name == channel)
    }
}
