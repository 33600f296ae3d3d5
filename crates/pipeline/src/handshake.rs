//! From an address to a connection that answers.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::batch::{Arg, Batch};
use crate::config::Config;
use crate::outcome::Outcome;
use crate::resp;
use crate::socket::Socket;

/// Connects, authenticates, selects the database and waits for a PING to come back.
///
/// # Errors
/// What went wrong, in words without secrets.
pub(crate) async fn open(config: &Config) -> Result<Socket, String> {
    let attempt = async {
        let mut socket = Socket::connect(&config.address).await.map_err(|error| error.to_string())?;
        greet(&mut socket, config).await?;
        Ok(socket)
    };
    timeout(config.connect_timeout, attempt)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {:?}", config.connect_timeout)))
}

async fn greet(socket: &mut Socket, config: &Config) -> Result<(), String> {
    let greeting = greeting(config);
    socket.write_all(&greeting.encoded).await.map_err(|error| error.to_string())?;
    let mut buffer = BytesMut::with_capacity(512);
    let mut replies = 0;
    while replies < greeting.len() {
        let read = socket.read_buf(&mut buffer).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("closed by the server during the handshake".to_owned());
        }
        resp::decode(&mut buffer, |outcome| {
            replies += 1;
            match outcome {
                // A server that loads its data is reachable: the commands themselves will be told to wait.
                Outcome::Reply(_) | Outcome::Rejected(_) => Ok(()),
                Outcome::ServerError(error) => Err(error.to_string()),
                other => Err(format!("unexpected {other:?}")),
            }
        })?;
    }
    Ok(())
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
