//! The limit or key that a command applies to.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::client::address::Query;
use crate::client::complete;
use crate::client::model::entries_text;

/// A key, by its domain and entries, or all keys of a limit.
#[derive(Debug, Args)]
pub(super) struct LimitTarget {
    /// The domain of a key
    #[arg(
        value_name = "DOMAIN",
        requires = "entries",
        required_unless_present = "rule",
        add = complete::domain()
    )]
    domain: Option<String>,
    /// The entries of the key
    #[arg(value_name = "KEY=VALUE", value_parser = entry)]
    entries: Vec<(String, String)>,
    /// All keys of this limit: its path in the configuration, such as vendor.tenant
    #[arg(long, value_name = "PATH", conflicts_with_all = ["domain", "entries"], add = complete::rule())]
    rule: Option<String>,
}

/// Parses an entry, for clap. Programs of envoyproxy/ratelimit take several entries with commas in
/// between, so what looks like them is refused rather than taken for one value.
pub(super) fn entry(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or("expected a key and a value, such as tenant=acme")?;
    let parts: Vec<&str> = value.split(',').collect();
    let is_next_entry = |pair: &[&str]| !pair[0].ends_with('\\') && pair[1].contains('=');
    if parts.windows(2).any(is_next_entry) {
        let separate = text.replace(',', " ");
        return Err(format!(
            "separate entries with blanks: {separate}. A value that has this comma is written with \\,"
        ));
    }
    Ok((key.to_owned(), value.replace("\\,", ",")))
}

impl LimitTarget {
    /// Fields of the target in a request body.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        match &self.rule {
            Some(rule) => _ = fields.insert("rule".to_owned(), json!(rule)),
            None => {
                fields.insert("domain".to_owned(), json!(self.domain));
                fields.insert("entries".to_owned(), json!(self.entries));
            }
        }
        fields
    }

    /// Fields of the target in a query.
    pub(super) fn query(&self) -> Query {
        let entries = self.domain.as_ref().map(|_| json!(self.entries));
        let query = Query::default().with("rule", self.rule.as_ref());
        query
            .with("domain", self.domain.as_ref())
            .with("entries", entries)
    }

    /// Name of the target for people.
    pub(super) fn name(&self) -> String {
        match (&self.rule, &self.domain) {
            (Some(rule), _) => rule.clone(),
            (None, domain) => format!(
                "{}  {}",
                domain.as_deref().unwrap_or_default(),
                entries_text(&self.entries)
            ),
        }
    }
}
