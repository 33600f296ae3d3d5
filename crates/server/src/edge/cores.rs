//! One single-threaded runtime per core. A connection and its calls stay on one core.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::edge::accept;
use crate::edge::connection;
use crate::rls::grpc::Services;
use crate::settings::ConnectionAge;
use crate::supervise::Supervisor;

/// The most connections that wait for one core.
const BACKLOG: usize = 1024;

/// A runtime for one core.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// An accepted connection on its way to a core, not yet registered with a runtime.
#[derive(Debug)]
enum Accepted {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// What a core serves its connections with.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) services: Services,
    pub(crate) age: ConnectionAge,
    pub(crate) supervisor: Supervisor,
}

/// The way to a core, for the acceptor.
#[derive(Debug)]
struct Door {
    sender: mpsc::Sender<Accepted>,
    /// The number of connections that the core has now.
    load: Arc<AtomicUsize>,
}

/// The running cores. The first is a task on the caller's runtime, each other one a thread.
#[derive(Debug)]
pub(crate) struct Running {
    first: JoinHandle<()>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// Counts one connection for as long as it lives.
struct Loaded(Arc<AtomicUsize>);

impl Drop for Loaded {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Starts `count` cores. `work` runs on each core's own thread, within its runtime.
///
/// # Errors
/// A thread or a runtime cannot be started.
pub(crate) fn start<W>(count: usize, work: W) -> io::Result<(Doors, Running)>
where
    W: Fn(usize) -> Work + Clone + Send + 'static,
{
    let (first, first_door) = door();
    let mut doors = vec![first_door];
    let mut running = Running { first: tokio::spawn(take_up(first, work(0))), threads: Vec::new() };
    for core in 1..count {
        let (arrivals, door) = door();
        doors.push(door);
        let (runtime, work) = (runtime()?, work.clone());
        let main = move || runtime.block_on(async move { take_up(arrivals, work(core)).await });
        running.threads.push(std::thread::Builder::new().name(format!("core-{core}")).spawn(main)?);
    }
    Ok((Doors(doors), running))
}

impl Running {
    /// Waits for all cores to end, as they do when told to stop.
    pub(crate) async fn join(self) {
        let mut failed = self.first.await.is_err();
        for thread in self.threads {
            failed |= thread.join().is_err();
        }
        if failed {
            warn!("a core panicked");
        }
    }
}

/// Connections for one core.
struct Arrivals {
    receiver: mpsc::Receiver<Accepted>,
    load: Arc<AtomicUsize>,
}

fn door() -> (Arrivals, Door) {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let load = Arc::new(AtomicUsize::new(0));
    (Arrivals { receiver, load: load.clone() }, Door { sender, load })
}

/// Serves connections as they arrive, until told to stop.
async fn take_up(arrivals: Arrivals, work: Work) {
    let Arrivals { mut receiver, load } = arrivals;
    loop {
        let accepted = tokio::select! {
            accepted = receiver.recv() => accepted,
            () = work.supervisor.stop.cancelled() => return,
        };
        let Some(accepted) = accepted else {
            // The acceptor has ended. Connections may still be at work on this runtime.
            return work.supervisor.stop.cancelled().await;
        };
        let loaded = Loaded(load.clone());
        let registered = match accepted {
            Accepted::Tcp(stream) => TcpStream::from_std(stream).map(|stream| work.serve(stream, loaded)),
            Accepted::Unix(stream) => UnixStream::from_std(stream).map(|stream| work.serve(stream, loaded)),
        };
        if let Err(error) = registered {
            warn!(%error, "cannot register a connection with its core");
        }
    }
}

impl Work {
    /// Serves one connection in a task of its own; `loaded` counts it until its end.
    fn serve<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: I, loaded: Loaded) {
        let Self { services, age, supervisor } = self.clone();
        self.supervisor.tasks.spawn(async move {
            connection::serve(stream, services, age, supervisor).await;
            drop(loaded);
        });
    }
}

/// Where gRPC connections come from.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                stream.into_std().map(Accepted::Tcp)
            }
            Self::Unix(listener) => listener.accept().await?.0.into_std().map(Accepted::Unix),
        }
    }
}

/// The ways to all cores.
#[derive(Debug)]
pub(crate) struct Doors(Vec<Door>);

impl Doors {
    /// Hands every connection to the core with the fewest, until the server drains.
    pub(crate) async fn accept(self, listener: Listener, supervisor: Supervisor) {
        loop {
            let accepted = tokio::select! {
                accepted = accept::next(listener.accept()) => accepted,
                () = supervisor.drain.cancelled() => return,
            };
            let Some(accepted) = accepted else { continue };
            let fewest = self.0.iter().min_by_key(|door| door.load.load(Relaxed)).expect("there is at least one core");
            fewest.load.fetch_add(1, Relaxed);
            if fewest.sender.send(accepted).await.is_err() {
                return; // the core has stopped, so everything has
            }
        }
    }
}
