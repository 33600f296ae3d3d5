//! The proxy's thread: an event loop over all its sockets.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, PipeReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;

use super::ProxyState;
use super::queue::DelayQueue;

/// Maximum wait for a server to accept. On loopback it accepts at once or not at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of one read: 64 KiB hold a batch of a hundred commands.
const READ_BYTES: usize = 64 * 1024;
const STOP: u64 = u64::MAX;

/// All listeners and connections of a proxy.
pub(super) struct Relay {
    epoll: OwnedFd,
    listeners: Vec<(TcpListener, SocketAddr)>,
    links: HashMap<u64, Link>,
    next: u64,
    /// Times at which a connection has bytes to write.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
    state: Arc<ProxyState>,
    buffer: Vec<u8>,
    _ended: PipeReader,
}

/// A proxied connection. Bytes of socket `i` go through queue `i` to the other socket.
struct Link {
    sockets: [TcpStream; 2],
    queues: [DelayQueue; 2],
    /// Whether the socket may have more to read, and whether it has room to write. Events set these
    /// and never clear them.
    readable: [bool; 2],
    writable: [bool; 2],
    /// Whether the socket has ended or failed. It may still have bytes to read.
    hung_up: [bool; 2],
    /// Whether the end of the socket was sent to the other one.
    end_sent: [bool; 2],
}

impl Relay {
    pub(super) fn new(
        listeners: Vec<(TcpListener, SocketAddr)>,
        ended: PipeReader,
        state: Arc<ProxyState>,
    ) -> Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).context("could not make an epoll")?;
        epoll::add(&epoll, &ended, EventData::new_u64(STOP), EventFlags::IN)?;
        for (index, (listener, _)) in listeners.iter().enumerate() {
            listener.set_nonblocking(true)?;
            epoll::add(
                &epoll,
                listener,
                EventData::new_u64(index as u64 * 2),
                EventFlags::IN,
            )?;
        }
        let next = listeners.len() as u64;
        let (links, timers) = (HashMap::new(), BinaryHeap::new());
        Ok(Self {
            epoll,
            listeners,
            links,
            next,
            timers,
            state,
            buffer: vec![0; READ_BYTES],
            _ended: ended,
        })
    }

    /// Serves until the pipe's writing end is closed.
    pub(super) fn run(&mut self) -> Result<()> {
        // By default the kernel may wake a thread 50 us late, to save power.
        rustix::thread::set_current_timer_slack(NonZero::new(1))
            .context("could not set the timer slack")?;
        let mut events: Vec<Event> = Vec::with_capacity(256);
        loop {
            let timeout = self.timers.peek().map(|Reverse((at, _))| time_until(*at));
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("could not wait for sockets"),
            }
            for event in &events {
                if event.data.u64() == STOP {
                    return Ok(());
                }
                self.handle(event.data.u64(), event.flags)?;
            }
            self.pump_due();
        }
    }

    /// Moves the bytes whose delay is over.
    fn pump_due(&mut self) {
        let now = Instant::now();
        while let Some(&Reverse((_, id))) = self.timers.peek().filter(|Reverse((at, _))| *at <= now)
        {
            self.timers.pop();
            self.pump(id);
        }
    }

    /// Accepts a connection, or moves the bytes that an event announces.
    fn handle(&mut self, token: u64, flags: EventFlags) -> Result<()> {
        let (id, side) = (token / 2, (token % 2) as usize);
        if let Some((listener, server)) = self.listeners.get(id as usize) {
            if let Some(link) = accept(listener, *server) {
                self.open(link)?;
            }
        } else if let Some(link) = self.links.get_mut(&id) {
            let ending = EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP;
            link.readable[side] |= flags.intersects(EventFlags::IN | ending);
            link.writable[side] |= flags.intersects(EventFlags::OUT | ending);
            link.hung_up[side] |= flags.intersects(ending);
            self.pump(id);
        }
        Ok(())
    }

    fn open(&mut self, link: Link) -> Result<()> {
        let id = self.next;
        self.next += 1;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        for (side, socket) in link.sockets.iter().enumerate() {
            epoll::add(
                &self.epoll,
                socket.as_fd(),
                EventData::new_u64(id * 2 + side as u64),
                flags,
            )?;
        }
        self.links.insert(id, link);
        Ok(())
    }

    /// Moves all bytes that can be moved now. A broken connection is closed on both sides.
    fn pump(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let mut pump = || -> io::Result<bool> {
            for side in 0..2 {
                // Writing makes room to read, so both alternate.
                loop {
                    let full = link.read(side, &self.state, &mut self.buffer, |at| {
                        self.timers.push(Reverse((at, id)))
                    })?;
                    let written = link.write(side)?;
                    if !(full && written) {
                        break;
                    }
                }
            }
            Ok(link.end_sent == [true, true])
        };
        if pump().unwrap_or(true) {
            self.links.remove(&id);
        }
    }
}

impl Link {
    /// Reads all available bytes. Returns true if the queue is full.
    fn read(
        &mut self,
        side: usize,
        state: &ProxyState,
        buffer: &mut [u8],
        mut wake_at: impl FnMut(Instant),
    ) -> io::Result<bool> {
        let queue = &mut self.queues[side];
        while self.readable[side] && !queue.is_ended() {
            let room = queue.room().min(buffer.len());
            if room == 0 {
                state.full.fetch_add(1, Relaxed);
                return Ok(true);
            }
            match self.sockets[side].read(&mut buffer[..room]) {
                Ok(0) => {
                    let release = Instant::now() + state.one_way();
                    queue.end(release);
                    wake_at(release);
                }
                Ok(count) => {
                    wake_at(queue.push(&buffer[..count], Instant::now() + state.one_way()));
                    // A short read: the socket is empty, and an event announces more bytes.
                    self.readable[side] = count == room || self.hung_up[side];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable[side] = false
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Writes all bytes that are due. Returns true if any were written.
    fn write(&mut self, side: usize) -> io::Result<bool> {
        let (queue, other) = (&mut self.queues[side], 1 - side);
        let now = Instant::now();
        let mut written = false;
        while self.writable[other] {
            let due = queue.due(now);
            if due.iter().all(|slice| slice.is_empty()) {
                break;
            }
            match self.sockets[other].write_vectored(&due) {
                Ok(count) => {
                    queue.written(count);
                    written = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable[other] = false
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if !self.end_sent[side] && queue.is_over(now) {
            self.end_sent[side] = true;
            self.sockets[other].shutdown(Shutdown::Write)?;
        }
        Ok(written)
    }
}

fn accept(listener: &TcpListener, server: SocketAddr) -> Option<Link> {
    let (client, _) = listener.accept().ok()?;
    // If the server refuses, the client's socket is dropped, which ends its connection.
    let server = TcpStream::connect_timeout(&server, CONNECT_TIMEOUT).ok()?;
    for socket in [&client, &server] {
        socket.set_nonblocking(true).ok()?;
        socket.set_nodelay(true).ok()?;
    }
    Some(Link {
        sockets: [client, server],
        queues: <[DelayQueue; 2]>::default(),
        readable: [true; 2],
        writable: [true; 2],
        hung_up: [false; 2],
        end_sent: [false; 2],
    })
}

fn time_until(at: Instant) -> Timespec {
    let left = at.saturating_duration_since(Instant::now());
    Timespec::try_from(left).expect("a delay has few seconds")
}
