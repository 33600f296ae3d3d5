//! The sentinels of one primary: queries its address, and listens to failover messages.

use std::cmp::Reverse;
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::warn;

use super::{
    QueryFailures, View, query_server, query_with_login, warn_no_owners, warn_no_primary,
    within_query_timeout,
};
use crate::batch::{Arg, Batch};
use crate::config::{Address, Credentials};
use crate::link::handshake;
use crate::link::{ClientContext, Login};
use crate::outcome::Outcome;
use crate::wire::{Protocol, Reply, SLOTS};

/// Delay before the client listens again after the connection to a sentinel was lost.
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The sentinels of one primary.
#[derive(Debug)]
pub(crate) struct Sentinels {
    master: String,
    login: Login,
    addresses: Vec<Address>,
}

impl Sentinels {
    pub(crate) fn new(
        master: String,
        addresses: Vec<Address>,
        credentials: Option<Credentials>,
    ) -> Arc<Self> {
        let login = Login {
            credentials,
            database: 0,
            protocol: Protocol::Resp2,
        };
        Arc::new(Self {
            master,
            login,
            addresses,
        })
    }

    /// Finds the primary: the server that more than half of the sentinels name. Without such a
    /// majority, it is the server that most of those name that answer within a second. In both
    /// cases the server must say that it is a primary.
    ///
    /// # Errors
    /// No primary is known. The text has the answers of the sentinels and of the servers that they
    /// named.
    pub(crate) async fn view(
        self: &Arc<Self>,
        context: &Arc<ClientContext>,
    ) -> Result<View, String> {
        let (mut named, mut failures) = self.named_primaries(context).await;
        if !named.is_empty() {
            // Enough sentinels answered, so only the reasons against their primary matter.
            failures = QueryFailures::default();
        }
        named.sort_by_key(|named| Reverse(named.sentinels));
        for NamedPrimary { address, .. } in named {
            match check_primary(&address, context).await {
                Ok(()) => {
                    return Ok(View {
                        ranges: vec![(0..=(SLOTS - 1) as u16, address)],
                        cluster_epoch: None,
                    });
                }
                Err(reason) => failures.add(&format_args!("the primary {address}"), &reason),
            }
        }
        Err(failures.to_string())
    }

    /// Queries all sentinels at once. Returns the servers that they name, or only the one that more
    /// than half of them name, and the reasons of sentinels that name none.
    async fn named_primaries(
        self: &Arc<Self>,
        context: &Arc<ClientContext>,
    ) -> (Vec<NamedPrimary>, QueryFailures) {
        let mut queries = JoinSet::new();
        for sentinel in &self.addresses {
            queries.spawn(
                self.clone()
                    .query_primary(sentinel.clone(), context.clone()),
            );
        }
        let mut named = Vec::<NamedPrimary>::new();
        let mut failures = QueryFailures::default();
        while let Some(answered) = queries.join_next().await {
            // A task that panicked has no answer.
            let Ok((sentinel, answer)) = answered else {
                continue;
            };
            let address = match answer {
                Ok(address) => address,
                Err(reason) => {
                    warn_no_primary(&sentinel, &reason);
                    failures.add(&format_args!("sentinel {sentinel}"), &reason);
                    continue;
                }
            };
            let at = named
                .iter()
                .position(|named| named.address == address)
                .unwrap_or_else(|| {
                    named.push(NamedPrimary {
                        address,
                        sentinels: 0,
                    });
                    named.len() - 1
                });
            named[at].sentinels += 1;
            if 2 * named[at].sentinels > self.addresses.len() {
                // The answers of a minority do not count then: it may be cut off, together with an
                // old primary.
                named = vec![named.swap_remove(at)];
                break;
            }
        }
        (named, failures)
    }

    /// Queries one sentinel for the address of the primary. The error is the reason for no address.
    async fn query_primary(
        self: Arc<Self>,
        sentinel: Address,
        context: Arc<ClientContext>,
    ) -> (Address, Result<Address, String>) {
        let answer = self.primary(&sentinel, &context).await;
        (sentinel, answer)
    }

    async fn primary(
        &self,
        sentinel: &Address,
        context: &ClientContext,
    ) -> Result<Address, String> {
        let mut commands = Batch::new();
        let arguments = [
            Arg::Bytes(b"GET-MASTER-ADDR-BY-NAME"),
            Arg::Bytes(self.master.as_bytes()),
        ];
        commands.unit().command("SENTINEL", &arguments);
        let outcomes = query_with_login(sentinel, context, &self.login, &commands).await?;
        let reply = match outcomes.into_iter().next() {
            Some(Outcome::Reply(reply)) => reply,
            Some(Outcome::ServerError(error)) => return Err(error.to_string()),
            Some(Outcome::Rejected(rejected)) => return Err(rejected.to_string()),
            _ => return Err("no answer that can be used".to_owned()),
        };
        let primary = primary_address(&reply)
            .ok_or_else(|| format!("it does not know the master {:?}", self.master))?;
        let named = primary.to_string();
        context
            .config
            .reachable(primary)
            .ok_or_else(|| format!("it is unknown how {named} is reached"))
    }

    /// Listens for messages that another server became primary, and requests a refresh at each.
    pub(crate) async fn listen(&self, context: &ClientContext) {
        loop {
            for sentinel in &self.addresses {
                self.listen_to(sentinel, context).await;
            }
            sleep(LISTEN_RETRY_DELAY).await;
        }
    }

    /// Listens to one sentinel until the connection breaks.
    async fn listen_to(&self, sentinel: &Address, context: &ClientContext) {
        let subscription = handshake::subscribe(sentinel, context, &self.login, b"+switch-master");
        let Ok(mut socket) = within_query_timeout(subscription).await else {
            return;
        };
        let mut buffer = BytesMut::with_capacity(512);
        while socket
            .read_buf(&mut buffer)
            .await
            .is_ok_and(|read| read > 0)
        {
            // The message only says that something changed. A query of the sentinels gives the
            // rest.
            buffer.clear();
            context.refresh_wanted.notify_one();
        }
    }
}

/// A server that sentinels named.
struct NamedPrimary {
    address: Address,
    /// Number of sentinels that named it.
    sentinels: usize,
}

/// Reads host and port. `None` if the sentinel does not know the master.
fn primary_address(reply: &Reply) -> Option<Address> {
    let Reply::Array(fields) = reply else {
        return None;
    };
    let [Ok(Reply::Bulk(host)), Ok(Reply::Bulk(port))] = &fields[..] else {
        return None;
    };
    let host = std::str::from_utf8(host).ok()?.to_owned();
    let port = std::str::from_utf8(port).ok()?.parse().ok()?;
    Some(Address::Tcp { host, port })
}

/// Checks that a server that sentinels name is a primary by its own answer. A sentinel may not have
/// noticed yet that its master is no longer one.
///
/// If the user may not run ROLE, the answer of the sentinels counts: a replica answers writes with
/// READONLY, and then the sentinels are queried again.
///
/// # Errors
/// The server is no primary, or does not answer.
async fn check_primary(address: &Address, context: &ClientContext) -> Result<(), String> {
    static LOGGED: Once = Once::new();
    let mut commands = Batch::new();
    commands.unit().command("ROLE", &[]);
    match query_server(address, context, &commands).await.as_deref() {
        Ok([Outcome::Reply(Reply::Array(fields))]) => match fields.first() {
            Some(Ok(Reply::Bulk(role))) if role == "master" => Ok(()),
            _ => Err("it is a replica".to_owned()),
        },
        Ok([Outcome::ServerError(error)]) if is_forbidden(&error.message) => {
            LOGGED.call_once(|| {
                let reason = "without it, an old primary is noticed only by its refusal of writes";
                warn!(node = %address, %error, reason, "let the user of redis run ROLE");
            });
            Ok(())
        }
        Ok([Outcome::Rejected(rejected)]) => Err(rejected.to_string()),
        Ok(_) => Err("it does not say whether it is a primary".to_owned()),
        Err(error) => {
            warn_no_owners(address, error);
            Err(error.clone())
        }
    }
}

/// Returns whether the user may not run the command, or the server does not know it.
fn is_forbidden(error: &str) -> bool {
    error.starts_with("NOPERM") || error.starts_with("ERR unknown command")
}
