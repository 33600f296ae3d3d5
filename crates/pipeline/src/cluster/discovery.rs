//! How the owners of slots are found: from the nodes of a cluster, or from sentinels.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::time::sleep;
use tracing::warn;

use crate::batch::{Arg, Batch};
use crate::cluster::topology::View;
use crate::config::{Address, Credentials};
use crate::link::handshake::{self, Login};
use crate::link::shared::Shared;
use crate::outcome::Outcome;
use crate::wire::resp::{Protocol, Reply};
use crate::wire::slot::SLOTS;

/// How many nodes are asked before a view that no second one confirms is believed.
const OPINIONS: usize = 3;

/// Wait before the sentinels are listened to again after the connection to one was lost.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Who tells which node owns what.
#[derive(Debug)]
pub(crate) enum Discovery {
    /// The nodes themselves, with CLUSTER SLOTS. The seeds are remembered for ever, as a last resort.
    Cluster(Vec<Address>),
    /// Sentinels, with the address of the primary, which owns everything.
    Sentinel(Arc<Sentinels>),
}

/// The sentinels of one primary.
#[derive(Debug)]
pub(crate) struct Sentinels {
    master: String,
    login: Login,
    /// The one that answered last comes first.
    addresses: Mutex<Vec<Address>>,
}

impl Discovery {
    /// How often to look when nothing calls for it.
    pub(crate) fn interval(&self) -> Duration {
        match self {
            Self::Cluster(_) => Duration::from_secs(30),
            // A primary that is cut off gives no error to notice.
            Self::Sentinel(_) => Duration::from_secs(5),
        }
    }

    /// Finds out who owns what. None when nobody can tell.
    pub(crate) async fn view(&self, in_use: Vec<Address>, shared: &Shared) -> Option<View> {
        match self {
            Self::Cluster(seeds) => cluster_view(sources(in_use, seeds), shared).await,
            Self::Sentinel(sentinels) => sentinels.view(shared).await,
        }
    }
}

/// Whom to ask: the nodes in use in random order, then the seeds.
fn sources(in_use: Vec<Address>, seeds: &[Address]) -> Vec<Address> {
    let mut sources = in_use;
    fastrand::shuffle(&mut sources);
    let new: Vec<Address> = seeds.iter().filter(|seed| !sources.contains(seed)).cloned().collect();
    sources.extend(new);
    sources
}

async fn cluster_view(sources: Vec<Address>, shared: &Shared) -> Option<View> {
    let mut question = Batch::new();
    question.unit().command("CLUSTER", &[Arg::Bytes(b"SLOTS")]);
    let mut views: Vec<View> = Vec::new();
    for address in sources {
        let Some(reply) = ask_server(&address, shared, &question).await else { continue };
        let Some(mut view) = View::read(&reply, &address) else { continue };
        view.ranges.iter_mut().for_each(|(_, owner)| *owner = shared.config.reachable(owner.clone()));
        if views.contains(&view) {
            return Some(view);
        }
        views.push(view);
        if views.len() == OPINIONS {
            break;
        }
    }
    // Without two that agree, the one that knows owners for most slots has most likely seen the latest change.
    views.into_iter().max_by_key(View::covered).filter(|view| view.covered() > 0)
}

/// Asks a server of the client.
async fn ask_server(address: &Address, shared: &Shared, question: &Batch) -> Option<Reply> {
    match Login::of(&shared.config) {
        Ok(login) => ask(address, shared, &login, question).await,
        Err(error) => {
            warn!(node = %address, error, "there is nothing to authenticate with");
            None
        }
    }
}

/// Asks one server on a connection of its own: no caller's reply waits behind a long list, and no busy or stuck connection
/// delays the news.
async fn ask(address: &Address, shared: &Shared, login: &Login, question: &Batch) -> Option<Reply> {
    match handshake::ask(address, shared, login, question).await {
        Ok(Outcome::Reply(reply)) => Some(reply),
        Ok(_) => None,
        Err(error) => {
            warn!(node = %address, error, "cannot ask who owns what");
            None
        }
    }
}

impl Sentinels {
    pub(crate) fn new(master: String, addresses: Vec<Address>, credentials: Option<Credentials>) -> Arc<Self> {
        Arc::new(Self {
            master,
            login: Login { credentials, database: 0, protocol: Protocol::Resp2 },
            addresses: Mutex::new(addresses),
        })
    }

    fn addresses(&self) -> MutexGuard<'_, Vec<Address>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the sentinels in turn; the first that names a server which says that it is a primary is believed.
    async fn view(&self, shared: &Shared) -> Option<View> {
        let mut question = Batch::new();
        let arguments = [Arg::Bytes(b"GET-MASTER-ADDR-BY-NAME"), Arg::Bytes(self.master.as_bytes())];
        question.unit().command("SENTINEL", &arguments);
        let sentinels = self.addresses().clone();
        for sentinel in sentinels {
            let Some(reply) = ask(&sentinel, shared, &self.login, &question).await else { continue };
            let Some(master) = master_address(&reply) else {
                warn!(node = %sentinel, master = self.master, "the sentinel does not know the master");
                continue;
            };
            let master = shared.config.reachable(master);
            if is_primary(&master, shared).await {
                self.prefer(&sentinel);
                return Some(View { ranges: vec![(0..=(SLOTS - 1) as u16, master)] });
            }
        }
        None
    }

    fn prefer(&self, sentinel: &Address) {
        let mut addresses = self.addresses();
        if let Some(at) = addresses.iter().position(|address| address == sentinel) {
            addresses[..=at].rotate_right(1);
        }
    }

    /// Listens for the news that another server became primary, as a hint to look at once.
    pub(crate) async fn listen(&self, shared: &Shared) {
        loop {
            let sentinels = self.addresses().clone();
            for sentinel in sentinels {
                self.listen_to(&sentinel, shared).await;
            }
            sleep(LISTEN_AGAIN).await;
        }
    }

    /// Listens to one sentinel until the connection breaks.
    async fn listen_to(&self, sentinel: &Address, shared: &Shared) {
        let Ok(mut socket) = handshake::subscribe(sentinel, shared, &self.login, b"+switch-master").await else {
            return;
        };
        let mut buffer = BytesMut::with_capacity(512);
        while socket.read_buf(&mut buffer).await.is_ok_and(|read| read > 0) {
            // Whatever it says: the answer is to ask.
            buffer.clear();
            shared.trouble.notify_one();
        }
    }
}

/// Reads host and port; none when the sentinel does not know the master.
fn master_address(reply: &Reply) -> Option<Address> {
    let Reply::Array(fields) = reply else { return None };
    let [Ok(Reply::Bulk(host)), Ok(Reply::Bulk(port))] = &fields[..] else { return None };
    let host = std::str::from_utf8(host).ok()?.to_owned();
    let port = std::str::from_utf8(port).ok()?.parse().ok()?;
    Some(Address::Tcp { host, port })
}

/// A sentinel may not have noticed yet that its master is one no more.
async fn is_primary(address: &Address, shared: &Shared) -> bool {
    let mut question = Batch::new();
    question.unit().command("ROLE", &[]);
    let reply = ask_server(address, shared, &question).await;
    matches!(&reply, Some(Reply::Array(fields)) if matches!(fields.first(), Some(Ok(Reply::Bulk(role))) if role == "master"))
}
