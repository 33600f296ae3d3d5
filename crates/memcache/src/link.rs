//! The task that has the connection to one server: connects, writes what waits, and hands in replies in their order.

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
use crate::wire::{self, Reply};

/// The wait after a first failure. It doubles up to the longest.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
/// The longest wait. A server that is back is noticed after that.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// A server that works for this long begins anew with short waits.
const STEADY: Duration = Duration::from_secs(10);
/// One read drains the replies to a typical write.
const READ_BYTES: usize = 16 * 1024;
/// Asked for after a failure, to see whether the server answers at all.
const PROBE: &[u8] = b"tidegate_probe";

/// One connection after the other, to one server.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) node: Arc<Node>,
    pub(crate) connector: Option<Connector>,
    pub(crate) timeout: Duration,
}

/// Why a connection ended.
enum End {
    /// Nothing was owed: the server closes connections that are idle.
    Idle,
    /// The server is not among the servers any more, and owes nothing.
    Left,
    Failed(String),
}

impl Link {
    /// Serves the callers of the node until it leaves.
    pub(crate) async fn run(self) {
        let mut failures = 0;
        while self.wanted().await {
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
                    End::Failed(reason)
                }
            };
            match end {
                End::Left => return,
                End::Idle => {}
                End::Failed(reason) => {
                    if since.elapsed() >= STEADY {
                        failures = 0;
                    }
                    self.fail(&reason, failures).await;
                    failures += 1;
                }
            }
        }
    }

    /// Waits until a connection is wanted. False: never again.
    async fn wanted(&self) -> bool {
        loop {
            match (self.node.standing(), self.node.progress()) {
                (ServerState::Down, _) | (_, Some(_)) => return true,
                (ServerState::Leaving, None) => return false,
                (ServerState::Usable, None) => self.node.wake.notified().await,
            }
        }
    }

    /// Connects. A server that failed before must answer a question first.
    async fn open(&self, probe: bool) -> io::Result<Socket> {
        let mut socket = Socket::connect(&self.node.address, self.connector.as_ref()).await?;
        if probe {
            let mut output = BytesMut::new();
            let mut input = BytesMut::new();
            wire::get(&mut output, PROBE);
            socket.write_all(&output).await?;
            socket.flush().await?;
            loop {
                if socket.read_buf(&mut input).await? == 0 {
                    return Err(closed());
                }
                match wire::decode(&input).map_err(|garbage| io::Error::other(garbage.0))? {
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

    async fn serve(&self, socket: Socket, failures: &mut u32) -> End {
        let node = &self.node;
        if *failures > 0 {
            info!(server = %node.address, "memcached answers again");
        }
        count(&node.counters.opened, 1);
        node.set_standing(ServerState::Usable);
        let ended = self.exchange(socket).await;
        count(&node.counters.closed, 1);
        match (ended, node.progress()) {
            (Ok(()), _) => End::Left,
            (Err(_), None) => {
                *failures = 0;
                End::Idle
            }
            (Err(error), Some(_)) => End::Failed(error.to_string()),
        }
    }

    /// Writes and reads at the same time. Ends without an error when the node leaves.
    async fn exchange(&self, socket: Socket) -> io::Result<()> {
        let (mut reader, mut writer) = tokio::io::split(socket);
        let mut input = BytesMut::with_capacity(READ_BYTES);
        let mut output = BytesMut::new();
        let mut unflushed = false;
        let overdue = sleep(self.timeout);
        tokio::pin!(overdue);
        loop {
            if output.is_empty() {
                self.node.take_output(&mut output);
            }
            let progress = self.node.progress();
            if progress.is_none() && self.node.standing() == ServerState::Leaving {
                return Ok(());
            }
            input.reserve(READ_BYTES);
            tokio::select! {
                read = reader.read_buf(&mut input) => {
                    if read? == 0 {
                        return Err(closed());
                    }
                    self.node.answer(&mut input).map_err(|garbage| io::Error::other(garbage.0))?;
                }
                pushed = push(&mut writer, &mut output), if unflushed || !output.is_empty() => unflushed = pushed?,
                () = self.node.wake.notified(), if output.is_empty() => {}
                () = overdue.as_mut(), if progress.is_some() => {
                    let due = progress.unwrap_or_else(Instant::now) + self.timeout;
                    if due <= Instant::now() {
                        return Err(io::Error::new(
                            io::ErrorKind::TimedOut,
                            format!("no answer within {} ms", self.timeout.as_millis()),
                        ));
                    }
                    overdue.as_mut().reset(due.into());
                }
            }
        }
    }

    /// Tells everybody who waits, and waits itself, with the callers refused meanwhile.
    async fn fail(&self, reason: &str, failures: u32) {
        self.node.set_standing(ServerState::Down);
        self.node.fail_all();
        if failures == 0 {
            warn!(
                server = %self.node.address,
                error = reason,
                "memcached does not work: its counters read as zero until it does, so calls that only they would refuse pass"
            );
        }
        let wait = (SHORTEST_WAIT * 2_u32.saturating_pow(failures.min(10))).min(LONGEST_WAIT);
        // Up to a half less, so that cores and servers that lost it together do not ask together.
        let until = tokio::time::Instant::now() + wait.mul_f64(1.0 - 0.5 * fastrand::f64());
        loop {
            tokio::select! {
                () = sleep_until(until) => return,
                () = self.node.wake.notified() => {
                    if self.node.standing() == ServerState::Leaving {
                        return;
                    }
                }
            }
        }
    }
}

impl Drop for Link {
    /// However it ends, nobody waits for it.
    fn drop(&mut self) {
        self.node.set_standing(ServerState::Down);
        self.node.fail_all();
    }
}

/// Writes, or else flushes, which TLS needs. Says whether there is something to flush.
async fn push(writer: &mut WriteHalf<Socket>, output: &mut BytesMut) -> io::Result<bool> {
    if output.is_empty() {
        writer.flush().await?;
        return Ok(false);
    }
    writer.write_buf(output).await?;
    Ok(true)
}

fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the server closed the connection",
    )
}
