//! From an address to a connection that answers.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::batch::{Arg, Batch};
use crate::config::{Address, Config, Credentials};
use crate::outcome::Outcome;
use crate::resp;
use crate::shared::Shared;
use crate::socket::Socket;

/// Who a connection is for the server.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub(crate) credentials: Option<Credentials>,
    pub(crate) database: u32,
}

impl Login {
    /// What a server of the client is told now.
    pub(crate) fn of(config: &Config) -> Result<Self, String> {
        let credentials = match &config.credentials_provider {
            Some(provider) => Some(provider.ask()?),
            None => config.credentials.clone(),
        };
        Ok(Self { credentials, database: config.database })
    }
}

/// Connects, authenticates, selects the database and waits for a PING to come back.
///
/// # Errors
/// What went wrong, in words without secrets.
pub(crate) async fn open(address: &Address, shared: &Shared) -> Result<Socket, String> {
    let login = Login::of(&shared.config)?;
    within(shared, greeted(address, shared, &login)).await
}

/// Asks one question on a connection made for it.
///
/// # Errors
/// As [`open`].
pub(crate) async fn ask(
    address: &Address,
    shared: &Shared,
    login: &Login,
    question: &Batch,
) -> Result<Outcome, String> {
    let answer = async {
        let mut socket = greeted(address, shared, login).await?;
        exchange(&mut socket, question).await?.pop().ok_or_else(|| "no question".to_owned())
    };
    within(shared, answer).await
}

/// Opens a connection on which the messages of a channel arrive.
///
/// # Errors
/// As [`open`].
pub(crate) async fn subscribe(
    address: &Address,
    shared: &Shared,
    login: &Login,
    channel: &[u8],
) -> Result<Socket, String> {
    let attempt = async {
        let mut socket = greeted(address, shared, login).await?;
        let mut batch = Batch::new();
        batch.unit().command("SUBSCRIBE", &[Arg::Bytes(channel)]);
        exchange(&mut socket, &batch).await?;
        Ok(socket)
    };
    within(shared, attempt).await
}

async fn within<T>(shared: &Shared, attempt: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let limit = shared.config.connect_timeout;
    timeout(limit, attempt).await.unwrap_or_else(|_| Err(format!("no answer within {limit:?}")))
}

async fn greeted(address: &Address, shared: &Shared, login: &Login) -> Result<Socket, String> {
    let mut socket = Socket::connect(address, shared.connector.as_ref()).await.map_err(|error| error.to_string())?;
    // A server that loads its data is reachable: the commands themselves will be told to wait.
    exchange(&mut socket, &greeting(login)).await?;
    Ok(socket)
}

/// Writes commands and reads their replies, on a socket nobody else uses yet. An error reply ends it.
async fn exchange(socket: &mut Socket, batch: &Batch) -> Result<Vec<Outcome>, String> {
    socket.write_all(&batch.encoded).await.map_err(|error| error.to_string())?;
    let mut buffer = BytesMut::with_capacity(512);
    let mut outcomes = Vec::with_capacity(batch.len());
    while outcomes.len() < batch.len() {
        let read = socket.read_buf(&mut buffer).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("closed by the server during the handshake".to_owned());
        }
        resp::decode(&mut buffer, |outcome| match outcome {
            Outcome::ServerError(error) => Err(error.to_string()),
            outcome => {
                outcomes.push(outcome);
                Ok(())
            }
        })?;
    }
    Ok(outcomes)
}

fn greeting(login: &Login) -> Batch {
    let mut batch = Batch::new();
    if let Some(credentials) = &login.credentials {
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
