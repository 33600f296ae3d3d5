//! The task that owns the connection to one server: connects, writes queued commands, and matches
//! replies in their order.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tidegate_pipeline::{Connector, Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::time::{sleep, sleep_until, timeout};
use tracing::{info, warn};

use crate::node::{Node, ServerState};
use crate::stats::count;
use crate::wire::{self, InvalidReply, Reply};

/// Delay before the first attempt to reconnect. It doubles after each failure, up to the maximum.
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(50);
/// Maximum delay between two attempts: a server that works again is noticed after at most 3 s.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(3);
/// A connection that lasted this long resets the delay to its minimum.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(10);
/// Bytes of one read: it drains the replies to a typical write.
const READ_BYTES: usize = 16 * 1024;
/// Key of the `get` that tests whether a server answers after a failure.
const PROBE_KEY: &[u8] = b"tidegate_probe";

/// The successive connections to one server.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) node: Arc<Node>,
    pub(crate) connector: Option<Connector>,
    pub(crate) timeout: Duration,
}

/// Reason for the end of a connection.
enum ConnectionEnd {
    /// No reply was pending: the server closes idle connections.
    Idle,
    /// The server was removed from the list, and no reply is pending.
    Left,
    Failed(String),
}

impl Link {
    /// Serves the callers of the node until it leaves.
    pub(crate) async fn run(self) {
        let mut failures = 0;
        while self.connection_needed().await {
            let opened = match timeout(self.timeout, self.open(failures > 0)).await {
                Ok(opened) => opened.map_err(|error| error.to_string()),
                Err(_) => Err(format!(
                    "no connection within {} ms",
                    self.timeout.as_millis()
                )),
            };
            let since = Instant::now();
            let end = match opened {
                Ok(socket) => self.serve(socket, &mut failures).await,
                Err(reason) => {
                    count(&self.node.counters.connect_failures, 1);
                    ConnectionEnd::Failed(reason)
                }
            };
            match end {
                ConnectionEnd::Left => return,
                ConnectionEnd::Idle => {}
                ConnectionEnd::Failed(reason) => {
                    if since.elapsed() >= BACKOFF_RESET_AFTER {
                        failures = 0;
                    }
                    self.fail(&reason, failures).await;
                    failures += 1;
                }
            }
        }
    }

    /// Waits until a connection is needed. Returns false if the node has left and needs none any
    /// more.
    async fn connection_needed(&self) -> bool {
        loop {
            match (self.node.server_state(), self.node.last_progress()) {
                (ServerState::Down, _) | (_, Some(_)) => return true,
                (ServerState::Leaving, None) => return false,
                (ServerState::Usable, None) => self.node.wake.notified().await,
            }
        }
    }

    /// Connects. After a failure, the server must answer a probe first.
    async fn open(&self, probe: bool) -> io::Result<Socket> {
        let mut socket = Socket::connect(&self.node.address, self.connector.as_ref()).await?;
        if probe {
            let mut output = BytesMut::new();
            let mut input = BytesMut::new();
            wire::get(&mut output, PROBE_KEY);
            socket.write_all(&output).await?;
            socket.flush().await?;
            loop {
                if socket.read_buf(&mut input).await? == 0 {
                    return Err(closed_by_server());
                }
                match wire::decode(&input)? {
                    Some((Reply::End, used)) if used == input.len() => break,
                    Some(_) => {
                        return Err(io::Error::other("the server answers what it was not asked"));
                    }
                    None => {}
                }
            }
        }
        Ok(socket)
    }

    async fn serve(&self, socket: Socket, failures: &mut u32) -> ConnectionEnd {
        let node = &self.node;
        if *failures > 0 {
            info!(server = %node.address, "memcached answers again");
        }
        count(&node.counters.opened, 1);
        node.set_server_state(ServerState::Usable);
        let ended = self.exchange(socket).await;
        count(&node.counters.closed, 1);
        match (ended, node.last_progress()) {
            (Ok(()), _) => ConnectionEnd::Left,
            (Err(_), None) => {
                *failures = 0;
                ConnectionEnd::Idle
            }
            (Err(error), Some(_)) => ConnectionEnd::Failed(error.to_string()),
        }
    }

    /// Writes commands and reads replies concurrently. Returns `Ok` when the node leaves.
    async fn exchange(&self, socket: Socket) -> io::Result<()> {
        let (mut reader, mut writer) = tokio::io::split(socket);
        let mut input = BytesMut::with_capacity(READ_BYTES);
        let mut output = BytesMut::new();
        let mut unflushed = false;
        let reply_timeout = sleep(self.timeout);
        tokio::pin!(reply_timeout);
        loop {
            if output.is_empty() {
                self.node.take_output(&mut output);
            }
            let progress = self.node.last_progress();
            if progress.is_none() && self.node.server_state() == ServerState::Leaving {
                return Ok(());
            }
            input.reserve(READ_BYTES);
            tokio::select! {
                read = reader.read_buf(&mut input) => {
                    if read? == 0 {
                        return Err(closed_by_server());
                    }
                    self.node.on_input(&mut input)?;
                }
                pushed = push(&mut writer, &mut output), if unflushed || !output.is_empty() => unflushed = pushed?,
                () = self.node.wake.notified(), if output.is_empty() => {}
                () = reply_timeout.as_mut(), if progress.is_some() => {
                    let due = progress.unwrap_or_else(Instant::now) + self.timeout;
                    if due <= Instant::now() {
                        return Err(io::Error::new(
                            io::ErrorKind::TimedOut,
                            format!("no answer within {} ms", self.timeout.as_millis()),
                        ));
                    }
                    reply_timeout.as_mut().reset(due.into());
                }
            }
        }
    }

    /// Fails all pending commands and waits before the next attempt. Callers are refused during the
    /// wait.
    async fn fail(&self, reason: &str, failures: u32) {
        self.node.set_server_state(ServerState::Down);
        self.node.fail_all();
        if failures == 0 {
            warn!(
                server = %self.node.address,
                error = reason,
                "memcached does not work: its counters read as zero until it does, so calls that only they would refuse pass"
            );
        }
        let wait =
            (MIN_RECONNECT_DELAY * 2_u32.saturating_pow(failures.min(10))).min(MAX_RECONNECT_DELAY);
        // The delay is up to half shorter at random, so that cores and servers that lost this
        // server do not reconnect at the same moment.
        let until = tokio::time::Instant::now() + wait.mul_f64(1.0 - 0.5 * fastrand::f64());
        loop {
            tokio::select! {
                () = sleep_until(until) => return,
                () = self.node.wake.notified() => {
                    if self.node.server_state() == ServerState::Leaving {
                        return;
                    }
                }
            }
        }
    }
}

impl Drop for Link {
    /// Fails all pending commands, also if the task panics or is cancelled.
    fn drop(&mut self) {
        self.node.set_server_state(ServerState::Down);
        self.node.fail_all();
    }
}

/// Writes output, or flushes it if all is written, as TLS requires. Returns whether a flush is due.
async fn push(writer: &mut WriteHalf<Socket>, output: &mut BytesMut) -> io::Result<bool> {
    if output.is_empty() {
        writer.flush().await?;
        return Ok(false);
    }
    writer.write_buf(output).await?;
    Ok(true)
}

impl From<InvalidReply> for io::Error {
    fn from(InvalidReply(text): InvalidReply) -> Self {
        Self::other(text)
    }
}

fn closed_by_server() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the server closed the connection",
    )
}
