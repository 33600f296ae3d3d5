//! The filter of failed workflows by a failed job.

use std::collections::BTreeSet;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde::Deserialize;

use crate::client::api_client::ApiClient;
use crate::output::exit::{CommandResult, Exit, Failure};
use crate::output::printable::printable;

/// Filter of failed workflows by a failed job.
#[derive(Debug, Args)]
pub(crate) struct FailureFilter {
    // The server takes an empty word for one that was left out, and then finds all workflows.
    /// Kind of error, as in the list
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) kind: String,
    /// Only if a job of this handler failed with it
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) handler: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Kinds {
    items: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl FailureFilter {
    /// The failure that no workflow fits, with the kinds that `failure list` shows.
    pub(crate) async fn not_found(&self, remote: &ApiClient) -> CommandResult<Failure> {
        let kinds: Kinds = remote.get_json("/v1/failures?range=24h").await?;
        let kinds = kinds.items.into_iter().filter_map(|item| item.kind);
        let kinds: BTreeSet<String> = kinds.map(|kind| printable(&kind)).collect();
        let mut text = format!("no failure of kind '{}'", printable(&self.kind));
        if let Some(handler) = &self.handler {
            text += &format!(" of the handler '{}'", printable(handler));
        }
        if !kinds.is_empty() {
            let kinds: Vec<String> = kinds.into_iter().collect();
            text += &format!(". Kinds: {}", kinds.join(", "));
        }
        Ok(Failure::new(Exit::NotFound, text))
    }
}
