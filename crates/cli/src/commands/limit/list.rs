//! `tidegate limit list`: the limits of the configuration as a tree, with what is used of each.

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::super::watch::WatchOption;
use super::overrides::Override;
use super::target::entry;
use crate::client::address::Query;
use crate::client::api_client::ApiClient;
use crate::client::complete;
use crate::output::Screen;
use crate::output::counted::counted;
use crate::output::exit::CommandResult;
use crate::output::moment::Moment;
use crate::output::printable::printable;
use crate::output::table::{Cell, Table};

/// Limit of domains and descriptors in an answer of the server.
const MAX_ITEMS: usize = 1_000;
/// Columns by which a level of the tree is indented.
const INDENT: usize = 2;

#[derive(Debug, Args)]
pub(super) struct LimitListArgs {
    /// Only the limits of this domain
    #[arg(value_name = "DOMAIN", add = complete::domain())]
    domain: Option<String>,
    /// Only those below the descriptor with these entries
    #[arg(value_name = "KEY=VALUE", value_parser = entry)]
    entries: Vec<(String, String)>,
    #[command(flatten)]
    watch: WatchOption,
}

/// A level of the configuration: all domains, or the descriptors of one.
#[derive(Debug, Deserialize)]
struct LimitTree {
    #[serde(default)]
    domains: Vec<TreeDomain>,
    #[serde(default)]
    descriptors: Vec<TreeDescriptor>,
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
struct TreeDomain {
    name: String,
    limits: u64,
    /// `None`: too many for the answer.
    descriptors: Option<Vec<TreeDescriptor>>,
}

#[derive(Debug, Deserialize)]
struct TreeDescriptor {
    key: String,
    value: String,
    file: String,
    line: Option<u64>,
    limit: Option<ConfiguredLimit>,
    limits_below: u64,
    #[serde(default)]
    descriptors: Vec<TreeDescriptor>,
}

#[derive(Debug, Deserialize)]
struct ConfiguredLimit {
    rule: String,
    requests_per_unit: Option<u64>,
    unit: Option<String>,
    shadow_mode: bool,
    now: Option<Rates>,
    usage: Option<Usage>,
    #[serde(default)]
    overrides: Vec<Override>,
}

/// Rates of about the last minute at the server.
#[derive(Debug, Deserialize)]
struct Rates {
    hits_per_second: f64,
    refused_per_second: f64,
}

/// The use of the limit by its busiest key.
#[derive(Debug, Deserialize)]
struct Usage {
    used: u64,
    of: u64,
    values: u64,
    #[serde(default)]
    entries: Vec<(String, String)>,
}

pub(super) async fn list(
    wanted: &LimitListArgs,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    let entries = (!wanted.entries.is_empty()).then(|| json!(wanted.entries));
    let query = Query::default()
        .with("domain", wanted.domain.as_ref())
        .with("entries", entries)
        .with("limit", Some(MAX_ITEMS));
    let address = query.append_to("/v1/limits/configuration");
    wanted
        .watch
        .run(screen, async || show(&address, remote, screen).await)
        .await
}

async fn show(address: &str, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let text = remote.get(address).await?;
    let level: LimitTree = remote.parse(&text)?;
    let names: Vec<String> = level.rules().into_iter().map(printable).collect();
    let names = names.join("\n");
    screen.object(&text, &names, || Ok(Tree::new(screen).text(&level)))
}

impl LimitTree {
    /// The paths of all limits, as overrides and statistics name them.
    fn rules(&self) -> Vec<&str> {
        fn add<'a>(descriptors: &'a [TreeDescriptor], rules: &mut Vec<&'a str>) {
            for descriptor in descriptors {
                rules.extend(descriptor.limit.iter().map(|limit| limit.rule.as_str()));
                add(&descriptor.descriptors, rules);
            }
        }
        let mut rules = Vec::new();
        for domain in &self.domains {
            add(
                domain.descriptors.as_deref().unwrap_or_default(),
                &mut rules,
            );
        }
        add(&self.descriptors, &mut rules);
        rules
    }
}

/// The tree as a table: a row for each domain and descriptor.
struct Tree<'a> {
    table: Table,
    screen: &'a Screen,
    now: Moment,
}

impl<'a> Tree<'a> {
    fn new(screen: &'a Screen) -> Self {
        Self {
            table: Table::new(&[
                "LIMIT",
                "RATE",
                "USED NOW",
                "HITS/S",
                "REFUSED/S",
                "STATE",
                "DEFINED IN",
            ]),
            screen,
            now: Moment::now(),
        }
    }

    fn text(mut self, level: &LimitTree) -> String {
        if level.domains.is_empty() && level.descriptors.is_empty() {
            return "no limits\n".to_owned();
        }
        for domain in &level.domains {
            self.add_domain(domain);
        }
        self.add_level(&level.descriptors, 0);
        let mut text = self.table.text(self.screen);
        if level.next_cursor.is_some() {
            let dots = self.screen.dots();
            text += &format!(
                "{dots} there are more: `tidegate limit list DOMAIN KEY=VALUE` shows a part\n"
            );
        }
        text
    }

    fn add_domain(&mut self, domain: &TreeDomain) {
        let limits = counted(domain.limits, "limit");
        self.add_row(&domain.name, [&limits, "", "", "", "", ""]);
        match &domain.descriptors {
            Some(descriptors) => self.add_level(descriptors, 1),
            None => self.table.add_note(&format!(
                "too many to show here: tidegate limit list {}",
                domain.name
            )),
        }
    }

    fn add_level(&mut self, descriptors: &[TreeDescriptor], depth: usize) {
        for descriptor in descriptors {
            self.add_descriptor(descriptor, depth);
            self.add_level(&descriptor.descriptors, depth + 1);
        }
    }

    fn add_descriptor(&mut self, descriptor: &TreeDescriptor, depth: usize) {
        let value = match descriptor.value.as_str() {
            "" => "*",
            value => value,
        };
        let name = format!("{}{}={value}", " ".repeat(INDENT * depth), descriptor.key);
        let place = match descriptor.line {
            Some(line) => format!("{}:{line}", descriptor.file),
            None => descriptor.file.clone(),
        };
        let Some(limit) = &descriptor.limit else {
            return self.add_row(&name, ["", "", "", "", "", &place]);
        };
        let rate_of = |of: fn(&Rates) -> f64| limit.now.as_ref().map(of).map(significant);
        let hits = rate_of(|now| now.hits_per_second).unwrap_or_default();
        let refused = rate_of(|now| now.refused_per_second).unwrap_or_default();
        let used = limit.used();
        let state = limit.state();
        let rate = limit.rate();
        self.add_row(&name, [&rate, &used, &hits, &refused, &state, &place]);
        let overrides = limit.overrides.iter();
        let overrides = overrides.map(|item| item.state(self.screen, self.now));
        let mut notes: Vec<String> = limit.busiest().into_iter().chain(overrides).collect();
        if descriptor.descriptors.is_empty() && descriptor.limits_below > 0 {
            notes.push(format!(
                "{} below it",
                counted(descriptor.limits_below, "limit")
            ));
        }
        self.table.add_note(&notes.join("\n"));
    }

    fn add_row(&mut self, name: &str, others: [&str; 6]) {
        let mut row = vec![Cell::short(name)];
        row.extend(others.map(Cell::from));
        self.table.add_row(row);
    }
}

impl ConfiguredLimit {
    /// The rate in words, such as `60 per minute`.
    fn rate(&self) -> String {
        match (self.requests_per_unit, &self.unit) {
            (Some(requests), Some(unit)) => format!("{requests} per {unit}"),
            _ => "unlimited".to_owned(),
        }
    }

    /// Its state in a word or two. Who paused it, and why, is a note.
    fn state(&self) -> String {
        let is_full = self
            .usage
            .as_ref()
            .is_some_and(|usage| usage.used >= usage.of);
        let words = [
            self.shadow_mode.then_some("shadow mode"),
            is_full.then_some("full"),
        ];
        let effects = self.overrides.iter().filter_map(Override::word_of_limit);
        let words: Vec<&str> = words.into_iter().flatten().chain(effects).collect();
        words.join(", ")
    }

    /// The hits of its busiest key, such as `47 of 60`. Refused hits count,
    /// too, but a limit is never more than full.
    fn used(&self) -> String {
        let Some(usage) = &self.usage else {
            return String::new();
        };
        format!("{} of {}", usage.used.min(usage.of), usage.of)
    }

    /// The key that has used most, if the limit has several.
    fn busiest(&self) -> Option<String> {
        let usage = self.usage.as_ref().filter(|usage| usage.values > 1)?;
        let (key, value) = usage.entries.last()?;
        Some(format!("busiest: {key}={value}, of {} keys", usage.values))
    }
}

/// A rate with three digits at most, such as `35`, `9.4` or `0.02`.
pub(super) fn significant(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        10.0.. => format!("{rate:.0}"),
        1.0.. => format!("{rate:.1}"),
        _ => format!("{rate:.2}"),
    }
}
