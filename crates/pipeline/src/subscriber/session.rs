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

use crate::config::address::Address;
use crate::link::context::ClientContext;
use crate::link::handshake::{self, Probe, ReadySocket};
use crate::link::socket::Socket;
use crate::outcome::{Outcome, Rejection};
use crate::subscriber::Delivery;
use crate::subscriber::mailbox::Mailbox;
use crate::wire::command::{push_array, push_bulk};
use crate::wire::push::Push;
use crate::wire::reply::{Protocol, ServerError};
use crate::wire::resp::{self, Incoming};

/// Bytes of one read: a burst of small messages.
const READ_SIZE: usize = 16 * 1024;

/// Maximum silence before a PING is sent. Long stall timeouts are for calls, and no call waits for
/// a subscriber.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// Order of the registry to a session.
#[derive(Debug)]
pub(super) enum Order {
    Subscribe(Bytes),
    Unsubscribe(Bytes),
}

/// Report of a session to the registry.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) address: Address,
    /// Number of the session that reports.
    pub(super) session: u64,
    pub(super) news: News,
}

#[derive(Debug)]
pub(super) enum News {
    Subscribed(Bytes),
    /// The server ended this subscription: the slot of its channel moved.
    Unsubscribed(Bytes),
    /// The server answered with an error.
    Refused(Bytes, ServerError),
    /// The connection has ended, or could not be opened.
    Ended(String),
}

/// State of a session with one node.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) address: Address,
    pub(super) context: Arc<ClientContext>,
    pub(super) delivery: Delivery,
    /// A message of more bytes ends the connection.
    pub(super) largest_message: usize,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) reports: mpsc::Sender<Report>,
    pub(super) mailbox: Arc<Mailbox>,
}

/// An open connection.
struct Connection<'a> {
    session: &'a mut Session,
    socket: Socket,
    protocol: Protocol,
    buffer: BytesMut,
    /// Commands that are not answered yet, in order.
    asked: VecDeque<PendingCommand>,
    subscribed: HashSet<Bytes>,
    /// Time at which bytes last arrived.
    heard: Instant,
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
        self.report(News::Ended(reason)).await;
    }

    async fn open_and_listen(&mut self) -> Result<Infallible, String> {
        self.context.config.connect_pace.permit().await;
        let ReadySocket {
            socket,
            protocol,
            read,
            ..
        } = handshake::open(&self.address, &self.context, Probe::Ping).await?;
        let connection = Connection {
            session: self,
            socket,
            protocol,
            buffer: read,
            asked: VecDeque::new(),
            subscribed: HashSet::new(),
            heard: Instant::now(),
        };
        connection.listen().await
    }

    async fn report(&self, news: News) {
        let report = Report {
            address: self.address.clone(),
            session: self.id,
            news,
        };
        // Without a registry the subscriber was dropped, and this session ends soon.
        let _ = self.reports.send(report).await;
    }

    fn silence(&self) -> Duration {
        self.context.config.stall_timeout.min(MAX_SILENCE)
    }
}

impl Connection<'_> {
    async fn listen(mut self) -> Result<Infallible, String> {
        loop {
            let silence = self.session.silence();
            let is_pinged = self
                .asked
                .iter()
                .any(|asked| matches!(asked, PendingCommand::Ping));
            let wake = self.heard + if is_pinged { 2 * silence } else { silence };
            self.buffer.reserve(READ_SIZE);
            tokio::select! {
                // Arrived bytes come before the timer: after a pause of this process both are
                // ready.
                biased;
                read = self.socket.read_buf(&mut self.buffer) => self.read(read).await?,
                order = self.session.orders.recv() => match order {
                    Some(order) => self.obey(order).await?,
                    None => return Err("the subscriber was closed".to_owned()),
                },
                () = sleep_until(wake) => {
                    if is_pinged {
                        return Err(format!("no answer to PING for {silence:?}"));
                    }
                    self.ask(PendingCommand::Ping).await?;
                }
            }
        }
    }

    async fn read(&mut self, read: io::Result<usize>) -> Result<(), String> {
        if read.map_err(|error| error.to_string())? == 0 {
            return Err("closed by the server".to_owned());
        }
        self.heard = Instant::now();
        for incoming in resp::decode_incoming(self.protocol, &mut self.buffer)? {
            match incoming {
                Incoming::Push(fields) => {
                    // Later versions of Redis may push unknown messages.
                    if let Some(push) = Push::read(&fields) {
                        self.take(push).await?;
                    }
                }
                Incoming::Answer(answer) => self.answered(Outcome::of(answer)).await?,
            }
        }
        if self.buffer.len() > self.session.largest_message.max(READ_SIZE) {
            Err(format!(
                "a message of more than {} bytes",
                self.session.largest_message
            ))
        } else {
            Ok(())
        }
    }

    async fn take(&mut self, push: Push) -> Result<(), String> {
        match push {
            Push::Message { channel, payload } => {
                if let Some(channel) = self.subscribed.get(&channel) {
                    self.session.mailbox.message(channel, &payload);
                }
            }
            Push::Subscribed(channel) => {
                let Some(PendingCommand::Subscribe(asked)) = self
                    .asked
                    .pop_front()
                    .filter(|asked| asked.is_for(&channel))
                else {
                    return Err("a subscription that was not asked for".to_owned());
                };
                self.subscribed.insert(asked.clone());
                self.session.report(News::Subscribed(asked)).await;
            }
            Push::Unsubscribed(channel) => {
                if matches!(self.asked.front(), Some(PendingCommand::Unsubscribe(asked)) if *asked == channel)
                {
                    self.asked.pop_front();
                } else if let Some(channel) = self.subscribed.take(&channel) {
                    self.session.report(News::Unsubscribed(channel)).await;
                }
            }
            Push::Pong => self.answered_ping()?,
        }
        Ok(())
    }

    /// Handles an answer that is no push: an error, or the answer to PING.
    async fn answered(&mut self, outcome: Outcome) -> Result<(), String> {
        let error = match outcome {
            Outcome::Reply(_) => return self.answered_ping(),
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
        match self.asked.pop_front() {
            Some(PendingCommand::Subscribe(channel)) => {
                self.session.report(News::Refused(channel, error)).await
            }
            // The slot of its channel has moved already, and the subscription with it.
            Some(PendingCommand::Unsubscribe(_)) => {}
            Some(PendingCommand::Ping) | None => return Err(error.to_string()),
        }
        Ok(())
    }

    fn answered_ping(&mut self) -> Result<(), String> {
        match self.asked.pop_front() {
            Some(PendingCommand::Ping) => Ok(()),
            _ => Err("an answer that was not asked for".to_owned()),
        }
    }

    async fn obey(&mut self, order: Order) -> Result<(), String> {
        match order {
            Order::Subscribe(channel) => self.ask(PendingCommand::Subscribe(channel)).await,
            Order::Unsubscribe(channel) => {
                self.subscribed.remove(&channel);
                self.ask(PendingCommand::Unsubscribe(channel)).await
            }
        }
    }

    /// Writes one command. Each channel has its own command, so that an error is about one channel.
    async fn ask(&mut self, asked: PendingCommand) -> Result<(), String> {
        let (name, channel): (&[u8], _) = match (&asked, self.session.delivery) {
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
        let mut command = Vec::new();
        push_array(&mut command, 1 + usize::from(channel.is_some()));
        push_bulk(&mut command, name);
        if let Some(channel) = channel {
            push_bulk(&mut command, channel);
        }
        self.asked.push_back(asked);
        let socket = &mut self.socket;
        let write = async {
            socket.write_all(&command).await?;
            socket.flush().await
        };
        match timeout(self.session.silence(), write).await {
            Ok(wrote) => wrote.map_err(|error| error.to_string()),
            Err(_) => Err(format!("it read nothing for {:?}", self.session.silence())),
        }
    }
}

impl PendingCommand {
    fn is_for(&self, channel: &Bytes) -> bool {
        matches!(self, Self::Subscribe(asked) if asked == channel)
    }
}
