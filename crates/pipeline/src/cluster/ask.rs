//! Asks one server one question.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
            if let Some(attempts) = SILENT.count(address, Instant::now()) {
                warn!(node = %address, attempts, error, "cannot read the cluster's slots from this node");
            }
            None
        }
    }
}

/// How often attempts that failed are logged, for each server.
const TOLD: Duration = Duration::from_secs(60);
/// The most servers that are remembered.
const MOST: usize = 1_000;

/// Servers that did not answer, for all clients of the process: when that was logged, and how many attempts failed since.
static SILENT: Silent = Silent(Mutex::new(BTreeMap::new()));

struct Silent(Mutex<BTreeMap<String, (Instant, u64)>>);

impl Silent {
    /// Counts an attempt that failed. Returns the number to log now.
    fn count(&self, address: &Address, now: Instant) -> Option<u64> {
        let mut silent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if silent.len() >= MOST {
            silent.retain(|_, (told, _)| now.saturating_duration_since(*told) < TOLD);
        }
        match silent.get_mut(&address.to_string()) {
            Some((told, untold)) => {
                *untold += 1;
                let due = now.saturating_duration_since(*told) >= TOLD;
                due.then(|| {
                    *told = now;
                    std::mem::take(untold)
                })
            }
            None => {
                silent.insert(address.to_string(), (now, 0));
                Some(1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_told_of_once_a_minute() {
        let (silent, start) = (Silent(Mutex::default()), Instant::now());
        let address = |text: &str| text.parse::<Address>().unwrap();
        let at = |node: &str, seconds| silent.count(&address(node), start + Duration::from_secs(seconds));
        assert_eq!([at("a:1", 0), at("b:1", 1), at("a:1", 1), at("a:1", 59)], [Some(1), Some(1), None, None]);
        assert_eq!([at("a:1", 60), at("a:1", 61), at("b:1", 62)], [Some(3), None, Some(1)]);
    }
}
