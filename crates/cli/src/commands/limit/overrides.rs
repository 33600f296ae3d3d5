//! `tidegate limit overrides`, `pause`, `scale` and `resume`: limits and keys that are paused,
//! throttled or scaled.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::target::LimitTarget;
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::model::entries_text;
use crate::output::counted::counted;
use crate::output::exit::CommandResult;
use crate::output::moment::{Moment, span_of};
use crate::output::printable::printable;
use crate::output::table::{Cell, Table};
use crate::output::{ListItem, Screen};

const PATH: &str = "/v1/limits/overrides";

#[derive(Debug, Args)]
pub(super) struct Pause {
    #[command(flatten)]
    target: LimitTarget,
    /// Refuse requests, too
    #[arg(long)]
    gateway: bool,
    #[command(flatten)]
    terms: OverrideOptions,
}

#[derive(Debug, Args)]
pub(super) struct Scale {
    #[command(flatten)]
    target: LimitTarget,
    /// The factor, 0 to 1000
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    by: f64,
    #[command(flatten)]
    terms: OverrideOptions,
}

/// Parses a factor, for clap.
fn factor(text: &str) -> Result<f64, String> {
    text.parse()
        .map_err(|_| "expected a number such as 0.5".to_owned())
}

/// Duration of an override, and the reason for it.
#[derive(Debug, Args)]
struct OverrideOptions {
    /// End after this time; without it, when it is removed
    #[arg(long = "for", value_name = "TIME", value_parser = span_of)]
    lasts: Option<Duration>,
    /// Why, for those who see it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// The answer to a list.
#[derive(Debug, Deserialize)]
struct OverrideList {
    items: Vec<Box<RawValue>>,
    #[serde(default)]
    unreadable: u64,
}

/// An override of a limit or a key.
#[derive(Debug, Deserialize)]
pub(super) struct Override {
    rule: Option<String>,
    domain: Option<String>,
    #[serde(default)]
    entries: Vec<(String, String)>,
    effect: String,
    scale: Option<f64>,
    #[serde(default)]
    gateway: bool,
    until: Option<Moment>,
    at: Moment,
    by: String,
    #[serde(default)]
    reason: String,
}

impl Override {
    /// The effect in one word, such as `paused`, if it is of all keys of a limit.
    pub(super) fn word_of_limit(&self) -> Option<&str> {
        self.rule.as_ref().map(|_| self.effect.as_str())
    }

    /// The effect in words, such as `scaled by 0.5`.
    fn effect(&self) -> String {
        match self.scale {
            Some(factor) => format!("{} by {factor}", self.effect),
            None => self.effect.clone(),
        }
    }

    fn callers(&self) -> &'static str {
        if self.gateway {
            "jobs, requests"
        } else {
            "jobs"
        }
    }

    fn until(&self, screen: &Screen, now: Moment) -> String {
        match self.until {
            None => "until removed".to_owned(),
            Some(until) => screen.moment(until, now),
        }
    }

    /// The state of what it overrides, such as `paused by ops, ends in 12m: they are down`.
    pub(super) fn state(&self, screen: &Screen, now: Moment) -> String {
        let key = match &self.rule {
            Some(_) => String::new(),
            None => format!("{}: ", entries_text(&self.entries)),
        };
        let ends = match self.until {
            Some(until) => format!(", ends {}", screen.moment(until, now)),
            None => " until resumed".to_owned(),
        };
        let gap = if self.reason.is_empty() { "" } else { ": " };
        let Self { by, reason, .. } = self;
        format!("{key}{} by {by}{ends}{gap}{reason}", self.effect())
    }

    /// The override in one line.
    fn line(&self, screen: &Screen) -> String {
        let until = match self.until {
            Some(_) => format!("ends {}", self.until(screen, Moment::now())),
            None => "until it is removed".to_owned(),
        };
        printable(&format!(
            "{}  {} for {}, {until}",
            self.name(),
            self.effect(),
            self.callers()
        )) + "\n"
    }
}

impl ListItem for Override {
    const NOTHING: &str = "nothing is paused, throttled or scaled\n";

    fn name(&self) -> String {
        match &self.rule {
            Some(rule) => rule.clone(),
            None => format!(
                "{}  {}",
                self.domain.as_deref().unwrap_or_default(),
                entries_text(&self.entries)
            ),
        }
    }

    fn text(items: &[Self], screen: &Screen) -> String {
        let now = Moment::now();
        let mut table = Table::new(&[
            "LIMIT OR KEY",
            "EFFECT",
            "FOR",
            "UNTIL",
            "BY",
            "SINCE",
            "REASON",
        ]);
        for item in items {
            table.add_row(vec![
                Cell::from(item.name()),
                Cell::of_state(&item.effect(), "paused"),
                item.callers().into(),
                item.until(screen, now).into(),
                Cell::from(&item.by),
                screen.moment(item.at, now).into(),
                Cell::from(&item.reason),
            ]);
        }
        table.text(screen)
    }
}

pub(super) async fn list(remote: &ApiClient, screen: &Screen) -> CommandResult {
    let OverrideList { items, unreadable } = remote.get_json(PATH).await?;
    let more = (unreadable > 0).then(|| {
        format!(
            "{} of a later version have no effect",
            counted(unreadable, "override")
        )
    });
    screen.list::<Override>(&items, more.as_deref(), |item| remote.parse(item))
}

pub(super) async fn pause(pause: &Pause, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let mut fields = pause.target.fields();
    fields.insert("pause".to_owned(), json!(true));
    fields.insert("gateway".to_owned(), json!(pause.gateway));
    set(fields, &pause.terms, remote, screen).await
}

pub(super) async fn scale(scale: &Scale, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let mut fields = scale.target.fields();
    fields.insert("scale".to_owned(), json!(scale.by));
    set(fields, &scale.terms, remote, screen).await
}

async fn set(
    mut fields: Map<String, Value>,
    terms: &OverrideOptions,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    let lasts = terms
        .lasts
        .map(|span| ("for".to_owned(), json!(format!("{}us", span.as_micros()))));
    fields.extend(
        lasts.into_iter().chain(
            terms
                .reason
                .as_ref()
                .map(|text| ("reason".to_owned(), json!(text))),
        ),
    );
    let text = remote
        .text(&ApiRequest::put(PATH, Value::from(fields).to_string()))
        .await?;
    let set: Override = remote.parse(&text)?;
    screen.object(&text, &set.name(), || Ok(set.line(screen)))
}

pub(super) async fn resume(
    target: &LimitTarget,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    remote
        .text(&ApiRequest::delete(target.query().append_to(PATH)))
        .await?;
    let mut fields = target.fields();
    fields.insert("removed".to_owned(), json!(true));
    let name = target.name();
    screen.object(&Value::from(fields).to_string(), &name, || {
        Ok(format!("{}  resumed\n", printable(&name)))
    })
}
