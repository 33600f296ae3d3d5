//! Policies: limits of queues and handlers, and weights of queues. They are shown, set from a file,
//! or removed.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde::Deserialize;

use crate::client::address::escaped;
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::model::{JobLimit, entries_text};
use crate::definition::Definition;
use crate::output::Screen;
use crate::output::exit::CommandResult;
use crate::output::printable::printable;

/// Arguments of a command about policies.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    /// Set what this file has, in JSON or YAML; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "remove")]
    set: Option<PathBuf>,
    /// Remove all
    #[arg(long)]
    remove: bool,
}

/// Kind of policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyKind {
    QueueLimits,
    QueueWeights,
    HandlerLimits,
}

impl PolicyKind {
    /// Segments of the path before and after the name.
    const fn path(self) -> (&'static str, &'static str) {
        match self {
            Self::QueueLimits => ("queues", "limits"),
            Self::QueueWeights => ("queues", "weights"),
            Self::HandlerLimits => ("handlers", "limits"),
        }
    }
}

/// The answer of the server, with one of the lists.
#[derive(Debug, Deserialize)]
struct PolicyAnswer {
    #[serde(default)]
    limits: Vec<JobLimit>,
    #[serde(default)]
    weights: Vec<Weight>,
}

#[derive(Debug, Deserialize)]
struct Weight {
    entries: Vec<(String, String)>,
    weight: u64,
}

impl PolicyArgs {
    pub(crate) async fn run(
        &self,
        kind: PolicyKind,
        remote: &ApiClient,
        screen: &Screen,
    ) -> CommandResult {
        let (before, behind) = kind.path();
        let path = format!("/v1/{before}/{}/{behind}", escaped(&self.name));
        if self.remove {
            remote.text(&ApiRequest::delete(path.clone())).await?;
        }
        let text = match &self.set {
            None => remote.get(path).await?,
            Some(file) => set(file, path, remote).await?,
        };
        screen.object(&text, &self.name, || {
            Ok(lines(&remote.parse(&text)?, behind))
        })
    }
}

/// Sends a file, and returns the answer. A mistake that the server finds is shown with its position
/// in the file.
async fn set(file: &Path, path: String, remote: &ApiClient) -> CommandResult<String> {
    let body = Definition::read(file)?;
    remote
        .text(&ApiRequest::put(path, body.json()))
        .await
        .map_err(|failure| body.with_position(failure))
}

/// Text with a line for each limit or weight.
fn lines(shown: &PolicyAnswer, noun: &str) -> String {
    let limits = shown.limits.iter().map(JobLimit::to_string);
    let weights = shown.weights.iter().map(|weight| {
        printable(&format!(
            "{:>4}  {}",
            weight.weight,
            entries_text(&weight.entries)
        ))
    });
    let lines: String = limits.chain(weights).map(|line| line + "\n").collect();
    if lines.is_empty() {
        format!("no {noun}\n")
    } else {
        lines
    }
}
