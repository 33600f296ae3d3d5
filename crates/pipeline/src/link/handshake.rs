//! Opens connections: connects, authenticates, selects the database, and checks that the server
//! answers.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{ClientContext, Socket};
use crate::batch::{Arg, Batch};
use crate::config::{Address, Config, Credentials};
use crate::outcome::{Outcome, Rejection};
use crate::wire::{Decoder, Protocol};

/// Commands that set up a connection before it is used.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub(crate) credentials: Option<Credentials>,
    pub(crate) database: u32,
    pub(crate) protocol: Protocol,
}

/// Commands that a server must answer before a new connection is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// A PING.
    Ping,
    /// A PING and a command that may write. A server that hands over to its replica answers PING
    /// but delays writes: a connection that is silent for that reason is not broken.
    Write,
}

/// Error of a connection whose server sends a reply without a command.
const UNEXPECTED_REPLY: &str = "the server sent a reply that no command asked for";

/// Reason why the decoder stops in an exchange.
enum ExchangeEnd {
    /// Each command has its reply.
    Complete,
    Failed(String),
}

impl From<String> for ExchangeEnd {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// A socket on which the server answers, and its protocol.
#[derive(Debug)]
pub(crate) struct ReadySocket {
    pub(crate) socket: Socket,
    pub(crate) protocol: Protocol,
    /// The state of decoding the bytes in `read`.
    pub(crate) decoder: Decoder,
    /// The beginning of an incomplete push.
    pub(crate) read: BytesMut,
}

impl Login {
    /// Creates the login for a server of the client, with the current credentials.
    pub(crate) fn for_config(config: &Config) -> Result<Self, String> {
        let credentials = match &config.credentials_provider {
            Some(provider) => Some(provider.fetch()?),
            None => config.credentials.clone(),
        };
        Ok(Self {
            credentials,
            database: config.database,
            protocol: config.protocol,
        })
    }
}

/// Connects, authenticates, selects the database and waits for the answer to `probe`.
///
/// # Errors
/// The reason of the failure, without secrets.
pub(crate) async fn open(
    address: &Address,
    context: &ClientContext,
    probe: Probe,
) -> Result<ReadySocket, String> {
    let login = Login::for_config(&context.config)?;
    let attempt = async {
        let mut ready = log_in(address, context, &login).await?;
        if probe == Probe::Write {
            // Any answer is enough: most servers do not know the script, and some users may not run
            // scripts.
            ready.exchange_each(&write_probe(), |_| Ok(())).await?;
            // Delayed commands are released together, in any order. After one more round trip all
            // of them were answered.
            ready.exchange(&ping()).await?;
        }
        ready.check_nothing_left()?;
        Ok(ready)
    };
    within_connect_timeout(context, attempt).await
}

/// Runs commands on a separate connection. Error replies are outcomes.
///
/// # Errors
/// The errors of [`open`].
pub(crate) async fn run_commands(
    address: &Address,
    context: &ClientContext,
    login: &Login,
    commands: &Batch,
) -> Result<Vec<Outcome>, String> {
    let answer = async {
        let mut ready = log_in(address, context, login).await?;
        let mut outcomes = Vec::with_capacity(commands.len());
        let collect = |outcome| {
            outcomes.push(outcome);
            Ok(())
        };
        ready.exchange_each(commands, collect).await?;
        Ok(outcomes)
    };
    within_connect_timeout(context, answer).await
}

/// Opens a connection on which the messages of a channel arrive.
///
/// # Errors
/// The errors of [`open`].
pub(crate) async fn subscribe(
    address: &Address,
    context: &ClientContext,
    login: &Login,
    channel: &[u8],
) -> Result<Socket, String> {
    let attempt = async {
        let mut ready = log_in(address, context, login).await?;
        let mut batch = Batch::new();
        batch.unit().command("SUBSCRIBE", &[Arg::Bytes(channel)]);
        ready.exchange(&batch).await?;
        if !ready.read.is_empty() {
            // A message arrived with the answer.
            context.refresh_wanted.notify_one();
        }
        Ok(ready.socket)
    };
    within_connect_timeout(context, attempt).await
}

async fn within_connect_timeout<T>(
    context: &ClientContext,
    attempt: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let limit = context.config.connect_timeout;
    timeout(limit, attempt)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {limit:?}")))
}

async fn log_in(
    address: &Address,
    context: &ClientContext,
    login: &Login,
) -> Result<ReadySocket, String> {
    let socket = Socket::connect(address, context.config.tls.as_ref())
        .await
        .map_err(|error| error.to_string())?;
    let mut ready = ReadySocket::new(socket, login.protocol);
    if login.protocol == Protocol::Resp3 {
        let answer = ready.exchange(&hello(login)).await;
        match answer {
            Ok(_) => {}
            // If the server does not know or allow HELLO, the same connection uses RESP2.
            Err(error)
                if ["NOPROTO", "ERR unknown command", "NOPERM"]
                    .iter()
                    .any(|code| error.starts_with(code)) =>
            {
                ready.protocol = Protocol::Resp2;
                ready.decoder = Decoder::new(Protocol::Resp2);
            }
            Err(error) => return Err(error),
        }
    }
    // A server that loads its data counts as reachable: it rejects the commands themselves, and
    // they are sent again.
    ready
        .exchange(&login_commands(login, ready.protocol))
        .await?;
    Ok(ready)
}

impl ReadySocket {
    pub(crate) fn new(socket: Socket, protocol: Protocol) -> Self {
        Self {
            socket,
            protocol,
            decoder: Decoder::new(protocol),
            read: BytesMut::with_capacity(512),
        }
    }

    /// Writes commands and reads their replies while no other task uses the socket. An error reply
    /// ends the exchange.
    async fn exchange(&mut self, batch: &Batch) -> Result<Vec<Outcome>, String> {
        let mut outcomes = Vec::with_capacity(batch.len());
        let collect = |outcome| match outcome {
            Outcome::ServerError(error) => Err(without_arguments(&error.to_string())),
            Outcome::Rejected(rejected) if rejected.kind == Rejection::Unauthenticated => {
                Err(rejected.to_string())
            }
            outcome => {
                outcomes.push(outcome);
                Ok(())
            }
        };
        self.exchange_each(batch, collect).await?;
        Ok(outcomes)
    }

    /// Writes commands and passes their replies to `on_reply`, whose error ends the exchange.
    async fn exchange_each(
        &mut self,
        batch: &Batch,
        mut on_reply: impl FnMut(Outcome) -> Result<(), String>,
    ) -> Result<(), String> {
        self.check_nothing_left()?;
        self.socket
            .write_all(&batch.encoded)
            .await
            .map_err(|error| error.to_string())?;
        self.socket
            .flush()
            .await
            .map_err(|error| error.to_string())?;
        let mut replies = 0;
        while replies < batch.len() {
            let read = self
                .socket
                .read_buf(&mut self.read)
                .await
                .map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("closed by the server during the handshake".to_owned());
            }
            let decoded = self.decoder.decode(&mut self.read, |answer| {
                on_reply(Outcome::from_answer(answer))?;
                replies += 1;
                if replies == batch.len() {
                    Err(ExchangeEnd::Complete)
                } else {
                    Ok(())
                }
            });
            if let Err(ExchangeEnd::Failed(reason)) = decoded {
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Refuses the connection if a reply is left: it would be matched to the next command. Only a
    /// push or its beginning may be left.
    fn check_nothing_left(&mut self) -> Result<(), String> {
        self.decoder
            .decode(&mut self.read, |_| Err(UNEXPECTED_REPLY.to_owned()))?;
        let is_push = self.protocol == Protocol::Resp3 && self.read.first() == Some(&b'>');
        if self.read.is_empty() || is_push {
            Ok(())
        } else {
            Err(UNEXPECTED_REPLY.to_owned())
        }
    }
}

/// Removes the arguments from an error text. Redis repeats the arguments of an unknown command,
/// such as a renamed AUTH: the password would be logged.
fn without_arguments(error: &str) -> String {
    error
        .split(", with args beginning with")
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn hello(login: &Login) -> Batch {
    let mut arguments = vec![Arg::Integer(3)];
    if let Some(Credentials { username, password }) = &login.credentials {
        let username = username.as_deref().unwrap_or("default");
        arguments.extend([
            Arg::Bytes(b"AUTH"),
            Arg::Bytes(username.as_bytes()),
            Arg::Bytes(password.as_bytes()),
        ]);
    }
    let mut batch = Batch::new();
    batch.unit().command("HELLO", &arguments);
    batch
}

fn login_commands(login: &Login, protocol: Protocol) -> Batch {
    let mut batch = Batch::new();
    if let (Some(credentials), Protocol::Resp2) = (&login.credentials, protocol) {
        let password = Arg::Bytes(credentials.password.as_bytes());
        match &credentials.username {
            Some(username) => batch
                .unit()
                .command("AUTH", &[Arg::Bytes(username.as_bytes()), password]),
            None => batch.unit().command("AUTH", &[password]),
        };
    }
    if login.database != 0 {
        batch
            .unit()
            .command("SELECT", &[Arg::Integer(i64::from(login.database))]);
    }
    batch.unit().command("PING", &[]);
    batch
}

/// Returns a call of a script that no server has. It changes nothing, but a server that delays
/// writes delays it, too.
fn write_probe() -> Batch {
    let mut batch = Batch::new();
    batch
        .unit()
        .command("EVALSHA", &[Arg::Bytes(&[b'0'; 40]), Arg::Integer(0)]);
    batch
}

fn ping() -> Batch {
    let mut batch = Batch::new();
    batch.unit().command("PING", &[]);
    batch
}
