//! Asks one server one question.

use tracing::warn;

use crate::batch::Batch;
use crate::config::address::Address;
use crate::link::context::ClientContext;
use crate::link::handshake::{self, Login};
use crate::outcome::Outcome;
use crate::wire::reply::Reply;

/// Asks a server of the client.
pub(crate) async fn ask_server(address: &Address, context: &ClientContext, question: &Batch) -> Option<Reply> {
    match Login::of(&context.config) {
        Ok(login) => ask(address, context, &login, question).await,
        Err(error) => {
            warn!(node = %address, error, "there is nothing to authenticate with");
            None
        }
    }
}

/// Asks one server on a new connection, so that no caller's reply waits behind a long list, and no busy or stuck connection
/// delays the answer.
pub(crate) async fn ask(address: &Address, context: &ClientContext, login: &Login, question: &Batch) -> Option<Reply> {
    match handshake::ask(address, context, login, question).await {
        Ok(Outcome::Reply(reply)) => Some(reply),
        Ok(_) => None,
        Err(error) => {
            warn!(node = %address, error, "cannot read the cluster's slots from this node");
            None
        }
    }
}
