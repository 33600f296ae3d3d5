//! One single-threaded runtime per core. A gRPC connection and its calls stay on one core; each
//! call of `/json` runs on one.

pub(crate) mod connection;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::timeout;
use tracing::warn;

use self::connection::ConnectionGuards;
use crate::net::accept::{AcceptedConnection, ConnectionCount, accept_all};
use crate::net::bounds::{ConnectionSlot, MemoryBudget, PortBounds};
use crate::net::listen::GrpcListener;
use crate::net::movable_socket::MovableSocket;
use crate::net::tls::PortTlsAcceptor;
use crate::rls::call::Calls;
use crate::rls::grpc::Services;
use crate::settings::ConnectionAge;
use crate::supervise::runtime::ThreadRuntime;
use crate::supervise::{Supervisor, failpoint};

/// Maximum of connections that wait for one core.
const MAX_QUEUED_CONNECTIONS: usize = 1024;
/// Time that a connection waits for a core whose queue is full, before a core is chosen again.
const CHOICE_TIMEOUT: Duration = Duration::from_millis(10);

/// A connection in the queue of a core, counted among the connections of that core.
type QueuedConnection = (AcceptedConnection, ConnectionSlot, ConnectionCount);

/// The services and settings of one core.
#[derive(Debug, Clone)]
pub(crate) struct CoreServices {
    pub(crate) calls: Calls,
    pub(crate) services: Services,
    pub(crate) age: ConnectionAge,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) supervisor: Supervisor,
}

/// A running core as other threads see it.
#[derive(Debug)]
struct Core {
    inbox: CoreInbox,
    runtime: Handle,
    calls: Calls,
}

/// The sender of connections to a core.
#[derive(Debug)]
struct CoreInbox {
    sender: mpsc::Sender<QueuedConnection>,
    /// Number of connections that the core has now.
    load: Arc<AtomicUsize>,
}

impl CoreInbox {
    /// Number of connections in the queue of the core. A core that is stuck takes none out.
    fn waiting(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }
}

/// All cores. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Cores {
    cores: Arc<[Core]>,
    /// Number of calls of `/json` so far, which are distributed round robin.
    next_core: Arc<AtomicUsize>,
}

/// Starts `count` cores, each a thread, and waits until all are ready. `work` runs on each core's
/// own thread, within its runtime.
///
/// # Errors
/// A thread or a runtime cannot be started.
pub(crate) async fn start<W>(count: usize, supervisor: &Supervisor, work: W) -> io::Result<Cores>
where
    W: Fn(usize) -> CoreServices + Clone + Send + 'static,
{
    let mut cores = Vec::with_capacity(count);
    for core in 0..count {
        let (queue, inbox) = inbox();
        let runtime = ThreadRuntime::new()?;
        let work = work.clone();
        let handle = runtime.handle();
        let (ready_sender, ready) = oneshot::channel();
        let part: Arc<str> = format!("core-{core}").into();
        let serve = async move {
            let work = work(core);
            // The receiver is gone if the start has failed.
            let _ = ready_sender.send(work.calls.clone());
            serve_queue(queue, work).await;
        };
        let name = part.clone();
        supervisor.thread(part, move || runtime.block_on(failpoint::with(name, serve)))?;
        let calls = ready
            .await
            .map_err(|_| io::Error::other("a core ended during the start"))?;
        cores.push(Core {
            inbox,
            runtime: handle,
            calls,
        });
    }
    Ok(Cores {
        cores: cores.into(),
        next_core: Arc::default(),
    })
}

fn inbox() -> (mpsc::Receiver<QueuedConnection>, CoreInbox) {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_CONNECTIONS);
    let load = Arc::default();
    (receiver, CoreInbox { sender, load })
}

/// Serves connections as they arrive, until the server stops.
async fn serve_queue(mut queue: mpsc::Receiver<QueuedConnection>, work: CoreServices) {
    loop {
        let accepted = tokio::select! {
            accepted = queue.recv() => accepted,
            () = work.supervisor.stop.cancelled() => return,
        };
        let Some((accepted, slot, connection_count)) = accepted else {
            // The acceptor has ended. Connections may still have calls on this runtime.
            return work.supervisor.stop.cancelled().await;
        };
        let registered = match accepted {
            AcceptedConnection::Plain(socket) => MovableSocket::register(socket)
                .map(|stream| work.serve(stream, slot, connection_count)),
            AcceptedConnection::Secured(mut stream) => stream
                .get_mut()
                .0
                .attach()
                .map(|()| work.serve(stream, slot, connection_count)),
        };
        if let Err(error) = registered {
            warn!(%error, "cannot register a connection with its core");
        }
        // Calls of open connections run between two new connections, however many there are.
        yield_now().await;
    }
}

impl CoreServices {
    /// Serves one connection in its own task. `connection_count` counts it until its end.
    fn serve<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: I,
        slot: ConnectionSlot,
        connection_count: ConnectionCount,
    ) {
        let Self {
            services,
            age,
            budget,
            supervisor,
            ..
        } = self.clone();
        self.supervisor.tasks.spawn(async move {
            connection::serve(
                stream,
                services,
                age,
                ConnectionGuards { slot, budget },
                supervisor,
            )
            .await;
            drop(connection_count);
        });
    }
}

impl Cores {
    /// Sends every connection that `bounds` admit to the core with the fewest, until the server
    /// drains. With an acceptor, the TLS handshake comes first.
    pub(crate) async fn accept(
        self,
        listener: GrpcListener,
        acceptor: Option<PortTlsAcceptor>,
        bounds: PortBounds,
        supervisor: Supervisor,
    ) {
        let serve = move |accepted, _, slot| {
            let cores = self.clone();
            async move { cores.assign(accepted, slot).await }
        };
        accept_all(
            || listener.accept(),
            acceptor,
            &bounds.table,
            &supervisor,
            serve,
        )
        .await;
    }

    async fn assign(&self, accepted: AcceptedConnection, slot: ConnectionSlot) {
        let inboxes = || self.cores.iter().map(|core| &core.inbox);
        send_to_idlest(inboxes, accepted, slot).await;
    }

    /// Runs `work` on a core, round robin; a core with a longer task queue is passed over. Returns
    /// `None` if the core has ended, or `work` panicked.
    ///
    /// # Cancellation
    /// If the future is dropped, `work` continues to its end.
    pub(crate) async fn run<T, W>(&self, work: impl FnOnce(Calls) -> W) -> Option<T>
    where
        T: Send + 'static,
        W: Future<Output = T> + Send + 'static,
    {
        let queue_length = |core: &Core| core.runtime.metrics().global_queue_depth();
        let core = round_robin(
            &self.cores,
            self.next_core.fetch_add(1, Relaxed),
            queue_length,
        );
        core.runtime.spawn(work(core.calls.clone())).await.ok()
    }
}

/// Returns the item at `turn`, or the next one that is the least `behind`.
fn round_robin<T>(all: &[T], turn: usize, queue_length: impl Fn(&T) -> usize) -> &T {
    let (before, from) = all.split_at(turn % all.len());
    from.iter()
        .chain(before)
        .min_by_key(|item| queue_length(item))
        .expect("there is at least one core")
}

/// Sends a connection to the core with the fewest waiting connections, and of several to the one
/// with the fewest connections. While other cores take connections, a core that is stuck gets at
/// most one.
async fn send_to_idlest<'d, D: Iterator<Item = &'d CoreInbox>>(
    inboxes: impl Fn() -> D,
    accepted: AcceptedConnection,
    slot: ConnectionSlot,
) {
    loop {
        let fewest = |inbox: &&CoreInbox| (inbox.waiting(), inbox.load.load(Relaxed));
        let inbox = inboxes()
            .min_by_key(fewest)
            .expect("there is at least one core");
        match timeout(CHOICE_TIMEOUT, inbox.sender.reserve()).await {
            Ok(Ok(permit)) => {
                return permit.send((accepted, slot, ConnectionCount::count(&inbox.load)));
            }
            // A core that has ended takes the server with it; until then its connections are
            // closed.
            Ok(Err(_)) => return,
            // The queues of all cores are full.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::movable_socket::DetachedSocket;
    use std::os::unix::net::UnixStream as Socket;

    async fn send<'d, D: Iterator<Item = &'d CoreInbox>>(inboxes: impl Fn() -> D) {
        let (socket, _) = Socket::pair().unwrap();
        let accepted = AcceptedConnection::Plain(DetachedSocket::Unix(socket));
        send_to_idlest(inboxes, accepted, ConnectionSlot::for_test()).await;
    }

    /// A call of /json waited for a core that was stuck, while others were idle.
    #[test]
    fn cores_take_turns_and_one_that_is_behind_is_passed_over() {
        let cores = |queue_length: [usize; 3]| {
            [0, 1, 2].map(|turn| *round_robin(&[0, 1, 2], turn, |core: &usize| queue_length[*core]))
        };
        assert_eq!(cores([0, 0, 0]), [0, 1, 2]);
        assert_eq!(cores([0, 5, 0]), [0, 2, 2]);
        assert_eq!(cores([7, 5, 6]), [1, 1, 1]);
    }

    /// The acceptor waited for the core with the fewest connections, which was stuck, while others were idle.
    #[tokio::test(start_paused = true)]
    async fn connections_go_past_a_core_that_is_stuck() {
        let (stuck, first) = inbox();
        let (mut idle, second) = inbox();
        second.load.store(100, Relaxed);
        let inboxes = || [&first, &second].into_iter();
        for _ in 0..3 {
            send(inboxes).await;
        }
        assert_eq!((stuck.len(), idle.len()), (2, 1));
        idle.try_recv().unwrap();
        send(inboxes).await;
        assert_eq!((stuck.len(), idle.len()), (2, 1));
        for _ in 0..2 * MAX_QUEUED_CONNECTIONS - 3 {
            send(inboxes).await;
        }
        assert_eq!(
            (stuck.len(), idle.len()),
            (MAX_QUEUED_CONNECTIONS, MAX_QUEUED_CONNECTIONS)
        );
        let taking = async {
            tokio::time::sleep(10 * CHOICE_TIMEOUT).await;
            idle.recv().await.unwrap();
        };
        tokio::join!(send(inboxes), taking);
        assert_eq!(
            (stuck.len(), idle.len()),
            (MAX_QUEUED_CONNECTIONS, MAX_QUEUED_CONNECTIONS)
        );
    }
}
