//! `tidegate limit check`: the decision that a request would get.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::overrides::Override;
use super::target::entry;
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::complete;
use crate::client::model::entries_text;
use crate::output::exit::CommandResult;
use crate::output::moment::{Moment, short};
use crate::output::printable::printable;
use crate::output::{self, Screen};

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
    rule: Option<String>,
    file: Option<String>,
    line: Option<u64>,
    paused: Option<Override>,
    hint: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Rate {
    requests_per_unit: u64,
    unit: String,
}

/// The decision in one line, and what explains it in the next ones.
fn lines(status: &DescriptorStatus, screen: &Screen) -> String {
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
    let place = status.file.as_ref().map(|file| match status.line {
        Some(line) => format!("{file}:{line}"),
        None => file.clone(),
    });
    let paused = status.paused.as_ref();
    let facts = [
        ("limit", status.rule.clone()),
        ("defined in", place),
        (
            "state",
            paused.map(|paused| paused.state(screen, Moment::now())),
        ),
        ("hint", status.hint.clone()),
    ];
    let facts = facts.map(|(name, text)| (name, text.as_deref().map(printable)));
    let decision = printable(&parts.join("  "));
    format!("{decision}\n{}", output::facts(12, facts))
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
        let text = |status| lines(status, screen);
        Ok(checked.descriptors.iter().map(text).collect())
    })
}
