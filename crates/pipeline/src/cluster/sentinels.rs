//! The sentinels of one primary: where the primary is, and messages that another server became primary.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::time::sleep;
use tracing::warn;

use crate::batch::Batch;
use crate::batch::builder::Arg;
use crate::cluster::ask::{ask, ask_server};
use crate::cluster::view::View;
use crate::config::address::Address;
use crate::config::credentials::Credentials;
use crate::link::context::ClientContext;
use crate::link::handshake::{self, Login};
use crate::wire::reply::{Protocol, Reply};
use crate::wire::slot::SLOTS;

/// Wait before the sentinels are listened to again after the connection to one was lost.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// The sentinels of one primary.
#[derive(Debug)]
pub(crate) struct Sentinels {
    master: String,
    login: Login,
    /// The one that answered last comes first.
    addresses: Mutex<Vec<Address>>,
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

    /// Asks the sentinels in turn; the first answer counts that names a server which says that it is a primary.
    pub(crate) async fn view(&self, context: &ClientContext) -> Option<View> {
        let mut question = Batch::new();
        let arguments = [Arg::Bytes(b"GET-MASTER-ADDR-BY-NAME"), Arg::Bytes(self.master.as_bytes())];
        question.unit().command("SENTINEL", &arguments);
        let sentinels = self.addresses().clone();
        for sentinel in sentinels {
            let Some(reply) = ask(&sentinel, context, &self.login, &question).await else { continue };
            let Some(master) = master_address(&reply) else {
                warn!(node = %sentinel, master = self.master, "the sentinel does not know the master");
                continue;
            };
            let Some(master) = context.config.reachable(master) else { continue };
            if is_primary(&master, context).await {
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

    /// Listens for messages that another server became primary, and asks for a refresh at each.
    pub(crate) async fn listen(&self, context: &ClientContext) {
        loop {
            let sentinels = self.addresses().clone();
            for sentinel in sentinels {
                self.listen_to(&sentinel, context).await;
            }
            sleep(LISTEN_AGAIN).await;
        }
    }

    /// Listens to one sentinel until the connection breaks.
    async fn listen_to(&self, sentinel: &Address, context: &ClientContext) {
        let Ok(mut socket) = handshake::subscribe(sentinel, context, &self.login, b"+switch-master").await else {
            return;
        };
        let mut buffer = BytesMut::with_capacity(512);
        while socket.read_buf(&mut buffer).await.is_ok_and(|read| read > 0) {
            // The message only says that something changed. The sentinels are asked for the rest.
            buffer.clear();
            context.refresh_wanted.notify_one();
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

/// A sentinel may not have noticed yet that its master is no longer a primary.
async fn is_primary(address: &Address, context: &ClientContext) -> bool {
    let mut question = Batch::new();
    question.unit().command("ROLE", &[]);
    let reply = ask_server(address, context, &question).await;
    matches!(&reply, Some(Reply::Array(fields)) if matches!(fields.first(), Some(Ok(Reply::Bulk(role))) if role == "master"))
}
