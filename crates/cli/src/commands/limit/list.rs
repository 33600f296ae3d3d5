//! `tidegate limit list`: the limits of the configuration as a tree, with what is used of each.

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::super::watch::WatchOption;
use super::overrides::{self, Override};
use super::target::entry;
use crate::client::address::Query;
use crate::client::api_client::ApiClient;
use crate::client::complete;
use crate::output::Screen;
use crate::output::counted::counted;
use crate::output::exit::CommandResult;
use crate::output::moment::Moment;
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
struct Level {
    #[serde(default)]
    domains: Vec<Domain>,
    #[serde(default)]
    descriptors: Vec<Descriptor>,
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Domain {
    name: String,
    limits: u64,
    /// `None`: too many for the answer.
    descriptors: Option<Vec<Descriptor>>,
}

#[derive(Debug, Deserialize)]
struct Descriptor {
    key: String,
    value: String,
    file: String,
    line: Option<u64>,
    limit: Option<ConfiguredLimit>,
    limits_below: u64,
    #[serde(default)]
    descriptors: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
struct ConfiguredLimit {
    rule: String,
    requests_per_unit: Option<u64>,
    unit: Option<String>,
    shadow_mode: bool,
    r#use: Option<HitCounts>,
}

/// Hits since the server started.
#[derive(Debug, Deserialize)]
struct HitCounts {
    hits: u64,
    over_limit: u64,
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
    let level: Level = remote.parse(&text)?;
    let overrides = if screen.is_table() {
        overrides::read(remote).await?
    } else {
        Vec::new()
    };
    let names = level.rules().join("\n");
    screen.object(&text, &names, || {
        Ok(Tree::new(&overrides, screen).text(&level))
    })
}

impl Level {
    /// The paths of all limits, as overrides and statistics name them.
    fn rules(&self) -> Vec<&str> {
        fn add<'a>(descriptors: &'a [Descriptor], rules: &mut Vec<&'a str>) {
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
    overrides: &'a [Override],
    screen: &'a Screen,
    now: Moment,
}

impl<'a> Tree<'a> {
    fn new(overrides: &'a [Override], screen: &'a Screen) -> Self {
        Self {
            table: Table::new(&["LIMIT", "RATE", "HITS", "REFUSED", "STATE", "DEFINED IN"]),
            overrides,
            screen,
            now: Moment::now(),
        }
    }

    fn text(mut self, level: &Level) -> String {
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

    fn add_domain(&mut self, domain: &Domain) {
        let limits = counted(domain.limits, "limit");
        self.add_row(&domain.name, [&limits, "", "", "", ""]);
        match &domain.descriptors {
            Some(descriptors) => self.add_level(descriptors, 1),
            None => self.table.add_note(&format!(
                "too many to show here: tidegate limit list {}",
                domain.name
            )),
        }
    }

    fn add_level(&mut self, descriptors: &[Descriptor], depth: usize) {
        for descriptor in descriptors {
            self.add_descriptor(descriptor, depth);
            self.add_level(&descriptor.descriptors, depth + 1);
        }
    }

    fn add_descriptor(&mut self, descriptor: &Descriptor, depth: usize) {
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
            return self.add_row(&name, ["", "", "", "", &place]);
        };
        let count = |of: fn(&HitCounts) -> u64| {
            let count = limit.r#use.as_ref().map(of);
            count.map(|count| count.to_string()).unwrap_or_default()
        };
        let state = self.state(limit);
        let (hits, refused) = (count(|uses| uses.hits), count(|uses| uses.over_limit));
        self.add_row(&name, [&limit.rate(), &hits, &refused, &state, &place]);
        if descriptor.descriptors.is_empty() && descriptor.limits_below > 0 {
            let below = counted(descriptor.limits_below, "limit");
            self.table.add_note(&format!("{below} below it"));
        }
    }

    fn add_row(&mut self, name: &str, others: [&str; 5]) {
        let mut row = vec![Cell::short(name)];
        row.extend(others.map(Cell::from));
        self.table.add_row(row);
    }

    /// Whether an operator has paused or scaled the limit, and until when.
    fn state(&self, limit: &ConfiguredLimit) -> String {
        let of_limit = |item: &&Override| item.is_of_rule(&limit.rule);
        let shadow = limit.shadow_mode.then(|| "shadow mode".to_owned());
        let overrides = self.overrides.iter().filter(of_limit);
        let texts = overrides.map(|item| item.state(self.screen, self.now));
        shadow
            .into_iter()
            .chain(texts)
            .collect::<Vec<_>>()
            .join(", ")
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
}
