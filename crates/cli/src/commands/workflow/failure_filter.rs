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
struct FailureKinds {
    items: Vec<FailureKind>,
}

#[derive(Debug, Deserialize)]
struct FailureKind {
    kind: Option<String>,
}

impl FailureFilter {
    /// The failure that no workflow fits, with the kinds that `failure list` shows.
    pub(crate) async fn not_found(&self, remote: &ApiClient) -> CommandResult<Failure> {
        let kinds = known_kinds(remote).await?;
        let mut text = format!("no failure of kind '{}'", printable(&self.kind));
        if let Some(handler) = &self.handler {
            text += &format!(" of the handler '{}'", printable(handler));
        }
        if !kinds.is_empty() {
            text += &format!(". Kinds: {}", kinds.join(", "));
        }
        Ok(Failure::new(Exit::NotFound, text))
    }
}

async fn known_kinds(remote: &ApiClient) -> CommandResult<Vec<String>> {
    let failures: FailureKinds = remote.get_json("/v1/failures?range=24h").await?;
    let kinds = failures
        .items
        .into_iter()
        .filter_map(|failure| failure.kind);
    let kinds: BTreeSet<String> = kinds.map(|kind| printable(&kind)).collect();
    Ok(kinds.into_iter().collect())
}
