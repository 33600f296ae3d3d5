//! `tidegate limit check`: the decision that a request would get.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::target::entry;
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::complete;
use crate::client::model::entries_text;
use crate::output::Screen;
use crate::output::exit::CommandResult;
use crate::output::moment::short;
use crate::output::printable::printable;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// The domain
    #[arg(value_name = "DOMAIN", add = complete::domain())]
    domain: String,
    /// The entries of one descriptor
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = entry)]
    entries: Vec<(String, String)>,
    /// Number of hits
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    hits: u32,
}

/// The answer of the server.
#[derive(Debug, Deserialize)]
struct CheckAnswer {
    code: String,
    descriptors: Vec<DescriptorStatus>,
}

/// The decision for a descriptor.
#[derive(Debug, Deserialize)]
struct DescriptorStatus {
    entries: Vec<(String, String)>,
    code: String,
    limit: Option<Rate>,
    remaining: Option<u64>,
    reset_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Rate {
    requests_per_unit: u64,
    unit: String,
}

/// The decision in one line.
fn line(status: &DescriptorStatus) -> String {
    let mut parts = vec![status.code.replace('_', " "), entries_text(&status.entries)];
    match &status.limit {
        Some(Rate {
            requests_per_unit,
            unit,
        }) => parts.push(format!("{requests_per_unit} per {unit}")),
        None => parts.push("no limit".to_owned()),
    }
    parts.extend(status.remaining.map(|hits| format!("{hits} left")));
    parts.extend(
        status
            .reset_ms
            .map(|millis| format!("resets in {}", short(Duration::from_millis(millis)))),
    );
    printable(&parts.join("  ")) + "\n"
}

pub(super) async fn check(check: &Check, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let entries: Vec<_> = check
        .entries
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    let body = json!({
        "domain": check.domain,
        "descriptors": [{"entries": entries}],
        "hits_addend": check.hits,
    });
    let text = remote
        .text(&ApiRequest::post("/v1/limits/check", body.to_string()).without_effect())
        .await?;
    let checked: CheckAnswer = remote.parse(&text)?;
    screen.object(&text, &checked.code, || {
        Ok(checked.descriptors.iter().map(line).collect())
    })
}
