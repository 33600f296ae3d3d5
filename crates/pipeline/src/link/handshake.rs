//! From an address to a connection that answers.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::batch::Batch;
use crate::batch::builder::Arg;
use crate::config::Config;
use crate::config::address::Address;
use crate::config::credentials::Credentials;
use crate::link::context::ClientContext;
use crate::link::socket::Socket;
use crate::outcome::{Outcome, Rejection};
use crate::wire::reply::Protocol;
use crate::wire::resp;

/// Who a connection is for the server.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub(crate) credentials: Option<Credentials>,
    pub(crate) database: u32,
    pub(crate) protocol: Protocol,
}

/// What a new connection shows before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// That the server answers.
    Answers,
    /// That the server also runs what may write. One that hands over to its replica answers a PING, and holds writes back
    /// for a while: a connection that is silent because of that is not broken.
    Writes,
}

/// A connection that answers, and what it speaks.
#[derive(Debug)]
pub(crate) struct Greeted {
    pub(crate) socket: Socket,
    pub(crate) protocol: Protocol,
}

impl Login {
    /// What a server of the client is told now.
    pub(crate) fn of(config: &Config) -> Result<Self, String> {
        let credentials = match &config.credentials_provider {
            Some(provider) => Some(provider.ask()?),
            None => config.credentials.clone(),
        };
        Ok(Self { credentials, database: config.database, protocol: config.protocol })
    }
}

/// Connects, authenticates, selects the database and waits for a PING to come back, and for more when `proof` asks for it.
///
/// # Errors
/// What went wrong, in words without secrets.
pub(crate) async fn open(address: &Address, context: &ClientContext, proof: Proof) -> Result<Greeted, String> {
    let login = Login::of(&context.config)?;
    let attempt = async {
        let mut greeted = greeted(address, context, &login).await?;
        if proof == Proof::Writes {
            // Any answer will do: most servers do not know the script, and some users may not run any.
            greeted.converse(&write_probe(), |_| Ok(())).await?;
            // What was held back together is let go together, in any order. Behind one more turn all of it has been sent.
            greeted.exchange(&ping()).await?;
        }
        Ok(greeted)
    };
    within(context, attempt).await
}

/// Asks one question on a connection made for it.
///
/// # Errors
/// As [`open`].
pub(crate) async fn ask(
    address: &Address,
    context: &ClientContext,
    login: &Login,
    question: &Batch,
) -> Result<Outcome, String> {
    let answer = async {
        let mut greeted = greeted(address, context, login).await?;
        greeted.exchange(question).await?.pop().ok_or_else(|| "no question".to_owned())
    };
    within(context, answer).await
}

/// Opens a connection on which the messages of a channel arrive.
///
/// # Errors
/// As [`open`].
pub(crate) async fn subscribe(
    address: &Address,
    context: &ClientContext,
    login: &Login,
    channel: &[u8],
) -> Result<Socket, String> {
    let attempt = async {
        let mut greeted = greeted(address, context, login).await?;
        let mut batch = Batch::new();
        batch.unit().command("SUBSCRIBE", &[Arg::Bytes(channel)]);
        greeted.exchange(&batch).await?;
        Ok(greeted.socket)
    };
    within(context, attempt).await
}

async fn within<T>(context: &ClientContext, attempt: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let limit = context.config.connect_timeout;
    timeout(limit, attempt).await.unwrap_or_else(|_| Err(format!("no answer within {limit:?}")))
}

async fn greeted(address: &Address, context: &ClientContext, login: &Login) -> Result<Greeted, String> {
    let socket = Socket::connect(address, context.connector.as_ref()).await.map_err(|error| error.to_string())?;
    let mut greeted = Greeted { socket, protocol: login.protocol };
    if login.protocol == Protocol::Resp3 {
        let answer = greeted.exchange(&hello(login)).await;
        match answer {
            Ok(_) => {}
            // A server that does not know or allow it stays with RESP2, on the same connection.
            Err(error) if ["NOPROTO", "ERR unknown command", "NOPERM"].iter().any(|code| error.starts_with(code)) => {
                greeted.protocol = Protocol::Resp2;
            }
            Err(error) => return Err(error),
        }
    }
    // A server that loads its data is reachable: the commands themselves will be told to wait.
    greeted.exchange(&greeting(login, greeted.protocol)).await?;
    Ok(greeted)
}

impl Greeted {
    /// Writes commands and reads their replies, while nobody else uses the socket. An error reply ends it.
    async fn exchange(&mut self, batch: &Batch) -> Result<Vec<Outcome>, String> {
        let mut outcomes = Vec::with_capacity(batch.len());
        let collect = |outcome| match outcome {
            Outcome::ServerError(error) => Err(error.to_string()),
            Outcome::Rejected(rejected) if rejected.kind == Rejection::Unauthenticated => Err(rejected.to_string()),
            outcome => {
                outcomes.push(outcome);
                Ok(())
            }
        };
        self.converse(batch, collect).await?;
        Ok(outcomes)
    }

    /// As [`Greeted::exchange`], but `each` says which replies end it.
    async fn converse(
        &mut self,
        batch: &Batch,
        mut each: impl FnMut(Outcome) -> Result<(), String>,
    ) -> Result<(), String> {
        self.socket.write_all(&batch.encoded).await.map_err(|error| error.to_string())?;
        self.socket.flush().await.map_err(|error| error.to_string())?;
        let mut buffer = BytesMut::with_capacity(512);
        let mut replies = 0;
        while replies < batch.len() {
            let read = self.socket.read_buf(&mut buffer).await.map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("closed by the server during the handshake".to_owned());
            }
            resp::decode(self.protocol, &mut buffer, |answer| {
                replies += 1;
                each(Outcome::of(answer))
            })?;
        }
        Ok(())
    }
}

fn hello(login: &Login) -> Batch {
    let mut arguments = vec![Arg::Integer(3)];
    if let Some(Credentials { username, password }) = &login.credentials {
        let username = username.as_deref().unwrap_or("default");
        arguments.extend([Arg::Bytes(b"AUTH"), Arg::Bytes(username.as_bytes()), Arg::Bytes(password.as_bytes())]);
    }
    let mut batch = Batch::new();
    batch.unit().command("HELLO", &arguments);
    batch
}

fn greeting(login: &Login, protocol: Protocol) -> Batch {
    let mut batch = Batch::new();
    if let (Some(credentials), Protocol::Resp2) = (&login.credentials, protocol) {
        let password = Arg::Bytes(credentials.password.as_bytes());
        match &credentials.username {
            Some(username) => batch.unit().command("AUTH", &[Arg::Bytes(username.as_bytes()), password]),
            None => batch.unit().command("AUTH", &[password]),
        };
    }
    if login.database != 0 {
        batch.unit().command("SELECT", &[Arg::Integer(i64::from(login.database))]);
    }
    batch.unit().command("PING", &[]);
    batch
}

/// A script that no server has: nothing runs and nothing is kept, but a server that holds writes back holds this back too.
fn write_probe() -> Batch {
    let mut batch = Batch::new();
    batch.unit().command("EVALSHA", &[Arg::Bytes(&[b'0'; 40]), Arg::Integer(0)]);
    batch
}

fn ping() -> Batch {
    let mut batch = Batch::new();
    batch.unit().command("PING", &[]);
    batch
}
