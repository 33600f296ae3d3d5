//! Policies: limits of queues and handlers, and weights of queues. They are shown, set from a file,
//! or removed.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde::Deserialize;

use super::limit::LimitOfJob;
use crate::client::address::escaped;
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::definition::{Definition, read_text};
use crate::output::Screen;
use crate::output::exit::{Exit, Failure};
use crate::output::printable::printable;

/// Arguments of a command about policies.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Its name
    #[arg(value_name = "NAME", value_hint = ValueHint::Other)]
    name: String,
    /// Sets what this file has, in JSON or YAML; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "remove")]
    set: Option<PathBuf>,
    /// Removes all
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
    limits: Vec<LimitOfJob>,
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
    ) -> Result<Exit, Failure> {
        let (before, behind) = kind.path();
        let path = format!("/v1/{before}/{}/{behind}", escaped(&self.name));
        if self.remove {
            remote.text(&ApiRequest::delete(path.clone())).await?;
        }
        let text = match &self.set {
            None => remote.text(&ApiRequest::get(path)).await?,
            Some(file) => set(file, path, remote).await?,
        };
        screen.object(&text, &self.name, || {
            Ok(lines(&remote.parse(&text)?, behind))
        })?;
        Ok(Exit::Done)
    }
}

/// Sends a file, and returns the answer. A mistake that the server finds is shown with its position
/// in the file.
async fn set(file: &Path, path: String, remote: &ApiClient) -> Result<String, Failure> {
    let name = if file == Path::new("-") {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    };
    let text = read_text(file)
        .map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))?;
    let body = Definition::parse(file, text)
        .map_err(|mistake| Failure::usage(format!("{name}:{mistake}")))?;
    remote
        .text(&ApiRequest::put(path, body.json()))
        .await
        .map_err(|failure| match &failure.path {
            Some(path) => Failure {
                text: format!("{name}:{}", body.mistake(path, &failure.text)),
                ..failure
            },
            None => failure,
        })
}

/// Text with a line for each limit or weight.
fn lines(shown: &PolicyAnswer, noun: &str) -> String {
    let limits = shown.limits.iter().map(LimitOfJob::to_string);
    let entries = |weight: &Weight| {
        weight
            .entries
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect::<Vec<_>>()
            .join("  ")
    };
    let weights = shown
        .weights
        .iter()
        .map(|weight| printable(&format!("{:>4}  {}", weight.weight, entries(weight))));
    let lines: String = limits.chain(weights).map(|line| line + "\n").collect();
    if lines.is_empty() {
        format!("no {noun}\n")
    } else {
        lines
    }
}
