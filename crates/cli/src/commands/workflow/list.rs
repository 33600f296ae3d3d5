//! `tidegate workflow list` and `count`.

use std::collections::BTreeMap;

use clap::Args;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::watch::WatchOption;
use super::failure_filter::FailureFilter;
use crate::client::address::Query;
use crate::client::api_client::ApiClient;
use crate::client::complete;
use crate::client::model::{Incomplete, STATUSES, WorkflowSummary};
use crate::client::pages::{EmptyPageCounter, MAX_PAGE_ITEMS, read_pages};
use crate::client::workflow_ref::{short_id, short_length};
use crate::output::exit::{CommandResult, Failure};
use crate::output::moment::{Moment, short};
use crate::output::printable::printable;
use crate::output::table::{Cell, Table};
use crate::output::{ListItem, Screen};

const COUNT_PATH: &str = "/v1/workflows:count";

/// Filter of workflows by name, tag and time.
#[derive(Debug, Default, Args)]
pub(crate) struct WorkflowFilter {
    /// Only those of this name
    #[arg(long, value_parser = NonEmptyStringValueParser::new(), add = complete::workflow_name())]
    name: Option<String>,
    /// Only those with this tag
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    tag: Option<String>,
    /// Only those created then or later: 2026-11-21T12:00:00Z, 2026-11-21, or a span back from now
    /// such as 1h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only those created before then
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    #[arg(skip)]
    pub(super) failure: Option<FailureFilter>,
}

/// Filter of workflows by status.
#[derive(Debug, Default, Args)]
pub(crate) struct StatusFilter {
    /// Only those of these statuses, with commas between them
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(STATUSES))]
    status: Vec<String>,
}

#[derive(Debug, Args)]
pub struct WorkflowListArgs {
    #[command(flatten)]
    statuses: StatusFilter,
    #[command(flatten)]
    chosen: WorkflowFilter,
    /// Only those with this text in the name, a tag or the error, or as key or the beginning of the
    /// id
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// At most this many of the newest
    #[arg(
        long,
        visible_alias = "limit",
        value_name = "NUMBER",
        default_value_t = 100
    )]
    newest: usize,
    /// At most this many of the oldest, the oldest first
    #[arg(long, value_name = "NUMBER", conflicts_with = "newest")]
    oldest: Option<usize>,
    #[command(flatten)]
    watch: WatchOption,
}

#[derive(Debug, Args)]
pub(crate) struct WorkflowCountArgs {
    #[command(flatten)]
    chosen: WorkflowFilter,
    /// Count by name
    #[arg(long)]
    by_name: bool,
}

impl StatusFilter {
    pub(crate) fn failed() -> Self {
        Self {
            status: vec!["failed".to_owned()],
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.status.is_empty()
    }

    /// The statuses of the filter, or `else_these` if it has none.
    pub(crate) fn or(&self, else_these: &[&str]) -> Vec<String> {
        if self.status.is_empty() {
            else_these.iter().map(|&word| word.to_owned()).collect()
        } else {
            self.status.clone()
        }
    }
}

impl WorkflowFilter {
    pub(crate) fn by_failure(failure: FailureFilter) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        if self.failure.is_some() {
            return false;
        }
        [&self.name, &self.tag, &self.since, &self.until]
            .into_iter()
            .all(Option::is_none)
    }

    /// The filter as the query of a list. Durations are subtracted from `now`.
    pub(crate) fn query(&self, now: Moment) -> CommandResult<Query> {
        let failure = self.failure.as_ref();
        Ok(Query::default()
            .with("status", failure.map(|_| "failed"))
            .with("error", failure.map(|failure| &failure.kind))
            .with(
                "handler",
                failure.and_then(|failure| failure.handler.as_ref()),
            )
            .with("name", self.name.as_ref())
            .with("tag", self.tag.as_ref())
            .with("created_after", moment("since", self.since.as_ref(), now)?)
            .with("created_before", moment("until", self.until.as_ref(), now)?))
    }

    /// The filter as the body of a bulk action on workflows created before `as_of`. Durations are
    /// subtracted from `now`.
    pub(crate) fn filter(
        &self,
        statuses: &[String],
        now: Moment,
        as_of: Option<Moment>,
    ) -> CommandResult<serde_json::Value> {
        let before = moment("until", self.until.as_ref(), now)?
            .into_iter()
            .chain(as_of)
            .min();
        let mut filter = json!({
            "status": statuses, "name": self.name, "tag": self.tag,
            "created_after": moment("since", self.since.as_ref(), now)?.map(|since| since.to_string()),
            "created_before": before.map(|before| before.to_string()),
        });
        if let Some(failure) = &self.failure {
            filter["error"] = json!(failure.kind);
            filter["handler"] = json!(failure.handler);
        }
        Ok(filter)
    }

    /// Counts the workflows that the filter finds. With a failed job, each answer of the server
    /// counts a part of them.
    pub(crate) async fn count(
        &self,
        now: Moment,
        remote: &ApiClient,
    ) -> CommandResult<CountAnswer> {
        let query = self.query(now)?;
        let mut sum: CountAnswer = remote.get_json(query.clone().append_to(COUNT_PATH)).await?;
        let mut empty_pages = EmptyPageCounter::default();
        while let Some(cursor) = sum.next_cursor.take() {
            let next = query.clone().with("cursor", Some(&cursor));
            let part: CountAnswer = remote.get_json(next.append_to(COUNT_PATH)).await?;
            empty_pages.count_page(usize::try_from(part.total).unwrap_or(usize::MAX))?;
            sum.add(part);
        }
        Ok(sum)
    }
}

fn moment(option: &str, text: Option<&String>, now: Moment) -> CommandResult<Option<Moment>> {
    let Some(text) = text else { return Ok(None) };
    let expected = "expected a time such as 2026-11-21T12:00:00Z, a date, or a time span back from now such as 1h";
    let parsed = Moment::parse(text, now).map(Some);
    parsed.ok_or_else(|| Failure::usage(format!("--{option} '{text}': {expected}")))
}

pub(crate) async fn list(
    list: &WorkflowListArgs,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    let (order, limit) = match list.oldest {
        Some(limit) => ("oldest", limit),
        None => ("newest", list.newest),
    };
    let statuses = Some(list.statuses.or(&[]).join(",")).filter(|statuses| !statuses.is_empty());
    let query = list
        .chosen
        .query(Moment::now())?
        .with("status", statuses)
        .with("q", list.search.as_ref())
        .with("order", Some(order));
    let show = async || {
        let pages = read_pages("/v1/workflows", &query, limit, remote).await?;
        pages.show::<WorkflowSummary>(order, remote, screen)
    };
    list.watch.run(screen, show).await
}

impl ListItem for WorkflowSummary {
    const NOTHING: &str = "no workflows\n";

    fn name(&self) -> String {
        self.id.clone()
    }

    fn text(items: &[Self], screen: &Screen) -> String {
        let now = Moment::now();
        let mut table = Table::new(if screen.is_wide() {
            &[
                "ID",
                "NAME",
                "STATUS",
                "SUCCEEDED",
                "CREATED",
                "STARTED",
                "FINISHED",
                "DURATION",
                "EXPIRES",
                "TAGS",
            ]
        } else {
            &["ID", "NAME", "STATUS", "SUCCEEDED", "AGE", "DURATION"]
        });
        let length = short_length(items.iter().map(|item| item.id.as_str()));
        for item in items {
            let duration = item.duration(now).map(short).unwrap_or_default();
            let id = if screen.is_wide() {
                item.id.clone()
            } else {
                short_id(&item.id, length)
            };
            let mut row = vec![
                Cell::whole(&id),
                Cell::short(&item.name),
                Cell::of_state(&status(item), &item.status),
                Cell::short(&jobs(item)),
            ];
            if screen.is_wide() {
                row.extend([
                    Cell::moment(Some(item.created_at)),
                    Cell::moment(item.started_at),
                    Cell::moment(item.finished_at),
                    duration.into(),
                    Cell::moment(item.expires_at),
                    item.tags.join(",").into(),
                ]);
            } else {
                row.extend([short(now.since(item.created_at)).into(), duration.into()]);
            }
            table.add_row(row);
            if let Some(failure) = &item.error {
                table.add_note(&format!("{}: {}", failure.job, failure.error));
            }
        }
        table.text(screen)
    }
}

/// The status, with the progress of a workflow that is not over.
pub(crate) fn status(item: &WorkflowSummary) -> String {
    match item.status.as_str() {
        "running" | "paused" => format!("{} {}%", item.status, item.job_counts.percent()),
        status => status.to_owned(),
    }
}

/// Number of jobs that succeeded, such as `3/7, 1 failed`.
fn jobs(item: &WorkflowSummary) -> String {
    let jobs = &item.job_counts;
    let failed = if jobs.failed > 0 {
        format!(", {} failed", jobs.failed)
    } else {
        String::new()
    };
    format!("{}/{}{failed}", jobs.succeeded, jobs.total)
}

#[derive(Debug, Deserialize)]
pub(crate) struct CountAnswer {
    total: u64,
    by_status: BTreeMap<String, u64>,
    /// Time of the count by the server's clock.
    pub(crate) as_of: Option<Moment>,
    next_cursor: Option<String>,
    /// Number of workflows that the server could not read.
    #[serde(default)]
    pub(crate) unread: u64,
    pub(crate) incomplete: Option<Incomplete>,
}

impl CountAnswer {
    /// Adds the count of other workflows.
    fn add(&mut self, other: Self) {
        self.total = self.total.saturating_add(other.total);
        for (word, count) in other.by_status {
            let sum = self.by_status.entry(word).or_default();
            *sum = sum.saturating_add(count);
        }
        self.unread = self.unread.saturating_add(other.unread);
        self.incomplete = other.incomplete.or(self.incomplete.take());
        self.next_cursor = other.next_cursor;
    }

    /// Number of workflows with one of these statuses.
    pub(crate) fn number(&self, statuses: &[String]) -> u64 {
        let counts = statuses.iter().filter_map(|word| self.by_status.get(word));
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }
}

#[derive(Debug, Deserialize)]
struct CountsByName {
    by_name: BTreeMap<String, BTreeMap<String, u64>>,
    incomplete: Option<Incomplete>,
}

/// Reads all pages of a count by name, and merges their names into the first answer.
async fn all_names(query: Query, remote: &ApiClient) -> CommandResult<String> {
    let text = remote.get(query.append_to(COUNT_PATH)).await?;
    let mut all: Map<String, Value> = remote.parse(&text)?;
    // Servers of an earlier version send all names at once.
    if !all.get("next_cursor").is_some_and(Value::is_string) {
        return Ok(text);
    }
    let mut empty_pages = EmptyPageCounter::default();
    while let Some(Value::String(cursor)) = all.remove("next_cursor") {
        let mut page: Map<String, Value> = remote
            .get_json(
                query
                    .clone()
                    .with("cursor", Some(cursor))
                    .append_to(COUNT_PATH),
            )
            .await?;
        let names = match page.remove("by_name") {
            Some(Value::Object(names)) => names,
            _ => Map::new(),
        };
        empty_pages.count_page(names.len())?;
        if let Some(known) = all.get_mut("by_name").and_then(Value::as_object_mut) {
            known.extend(names);
        }
        all.extend(
            ["next_cursor", "incomplete"]
                .into_iter()
                .filter_map(|name| page.remove_entry(name)),
        );
    }
    Ok(Value::Object(all).to_string())
}

pub(crate) async fn count(
    count: &WorkflowCountArgs,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    if screen.is_name() && !count.by_name {
        return Err(Failure::usage(
            "-o name: without --by-name this command prints numbers and no names",
        ));
    }
    let query = count.chosen.query(Moment::now())?;
    let (text, table, names, incomplete);
    if count.by_name {
        let query = query
            .with("by", Some("name"))
            .with("limit", Some(MAX_PAGE_ITEMS));
        text = all_names(query, remote).await?;
        let counts: CountsByName = remote.parse(&text)?;
        table = by_name(&counts);
        let each = counts.by_name.keys().map(|name| printable(name));
        names = each.collect::<Vec<_>>().join("\n");
        incomplete = counts.incomplete;
    } else {
        text = remote.get(query.append_to(COUNT_PATH)).await?;
        let counts: CountAnswer = remote.parse(&text)?;
        table = by_status(&counts);
        names = STATUSES.join("\n");
        incomplete = counts.incomplete;
    }
    screen.object(&text, &names, || Ok(table.text(screen)))?;
    Incomplete::exit(incomplete.as_ref())
}

fn by_status(
    CountAnswer {
        total, by_status, ..
    }: &CountAnswer,
) -> Table {
    let mut table = Table::new(&["STATUS", "WORKFLOWS"]);
    for status in STATUSES {
        let number = by_status.get(status).copied().unwrap_or_default();
        table.add_row(vec![
            Cell::of_state(status, status),
            number.to_string().into(),
        ]);
    }
    table.add_row(vec!["total".into(), total.to_string().into()]);
    table
}

fn by_name(CountsByName { by_name, .. }: &CountsByName) -> Table {
    let mut table = Table::new(&[
        "NAME",
        "PENDING",
        "RUNNING",
        "PAUSED",
        "SUCCEEDED",
        "FAILED",
        "CANCELLED",
        "TOTAL",
    ]);
    for (name, by_status) in by_name {
        let of = |status| {
            by_status
                .get(status)
                .copied()
                .unwrap_or_default()
                .to_string()
        };
        let mut row = vec![Cell::from(name)];
        row.extend(STATUSES.map(|status| Cell::from(of(status))));
        row.push(
            by_status
                .values()
                .fold(0_u64, |sum, count| sum.saturating_add(*count))
                .to_string()
                .into(),
        );
        table.add_row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_ends_of_a_filter_the_earlier_one_counts() {
        let now = Moment::parse("2026-11-21T12:00:00Z", Moment::now()).unwrap();
        let check = |until: Option<&str>, as_of: Option<&str>, before: Option<&str>| {
            let chosen = WorkflowFilter {
                until: until.map(str::to_owned),
                ..WorkflowFilter::default()
            };
            let as_of = as_of.and_then(|as_of| Moment::parse(as_of, now));
            let filter = chosen.filter(&[], now, as_of).unwrap();
            assert_eq!(
                filter["created_before"].as_str(),
                before,
                "{until:?} {as_of:?}"
            );
        };
        let as_of = Some("2026-11-21T12:00:00.000001Z");
        check(None, as_of, as_of);
        check(Some("1h"), as_of, Some("2026-11-21T11:00:00.000000Z"));
        check(Some("2026-11-22"), as_of, as_of);
        // An older server says no moment.
        check(
            Some("2026-11-22"),
            None,
            Some("2026-11-22T00:00:00.000000Z"),
        );
        check(None, None, None);
    }
}
