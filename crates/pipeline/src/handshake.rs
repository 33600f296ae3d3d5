//! From an address to a connection that answers.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::batch::{Arg, Batch};
use crate::config::{Address, Config};
use crate::outcome::Outcome;
use crate::resp;
use crate::shared::Shared;
use crate::socket::Socket;

/// Connects, authenticates, selects the database and waits for a PING to come back.
///
/// # Errors
/// What went wrong, in words without secrets.
pub(crate) async fn open(address: &Address, shared: &Shared) -> Result<Socket, String> {
    within(shared.config.connect_timeout, greeted(address, shared)).await
}

/// Asks one question on a connection made for it.
///
/// # Errors
/// As [`open`].
pub(crate) async fn ask(address: &Address, shared: &Shared, question: &Batch) -> Result<Outcome, String> {
    let answer = async {
        let mut socket = greeted(address, shared).await?;
        exchange(&mut socket, question).await?.pop().ok_or_else(|| "no question".to_owned())
    };
    within(shared.config.connect_timeout, answer).await
}

async fn within<T>(limit: Duration, attempt: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    timeout(limit, attempt).await.unwrap_or_else(|_| Err(format!("no answer within {limit:?}")))
}

async fn greeted(address: &Address, shared: &Shared) -> Result<Socket, String> {
    let mut socket = Socket::connect(address, shared.connector.as_ref()).await.map_err(|error| error.to_string())?;
    // A server that loads its data is reachable: the commands themselves will be told to wait.
    exchange(&mut socket, &greeting(&shared.config)).await?;
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

fn greeting(config: &Config) -> Batch {
    let mut batch = Batch::new();
    if let Some(credentials) = &config.credentials {
        let password = Arg::Bytes(credentials.password.as_bytes());
        match &credentials.username {
            Some(username) => batch.unit().command("AUTH", &[Arg::Bytes(username.as_bytes()), password]),
            None => batch.unit().command("AUTH", &[password]),
        };
    }
    if config.database != 0 {
        batch.unit().command("SELECT", &[Arg::Integer(i64::from(config.database))]);
    }
    batch.unit().command("PING", &[]);
    batch
}
