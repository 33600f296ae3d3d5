//! The workflows that a verb is for: those that are named, or all that a filter finds.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::{ArgGroup, Args, ValueHint};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::ask::exit::{Exit, Failure, complain};
use crate::ask::remote::{Ask, Remote};
use crate::ask::which::{Which, path};
use crate::ask::wire::{Acted, STATUSES, Summary};
use crate::screen::Screen;
use crate::screen::moment::{Moment, short};
use crate::screen::printable::printable;
use crate::workflow::list::{Chosen, Counted, Statuses};
use crate::workflow::{act, for_each};

/// Failures that are told one by one.
const TOLD: usize = 20;
/// Most workflows of one request.
const MOST: u64 = 1_000;

/// Which workflows.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("filter").args(["status", "name", "tag", "since", "until", "yes", "dry_run"]).multiple(true))]
pub(crate) struct Targets {
    /// Workflows: ids or their first characters, key:KEY, or name:NAME for the newest of this name
    #[arg(conflicts_with = "filter", value_name = "ID", value_hint = ValueHint::Other)]
    pub(crate) ids: Vec<Which>,
    #[command(flatten)]
    statuses: Statuses,
    #[command(flatten)]
    chosen: Chosen,
    /// With a filter: do not ask whether to go on
    #[arg(long, short)]
    yes: bool,
    /// With a filter: only say how many workflows it finds
    #[arg(long)]
    dry_run: bool,
}

/// Something done to workflows that needs no more words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Start,
    Cancel,
    Pause,
    Resume,
    Retry,
    Remove,
    Expire(Keep),
}

/// How long workflows are kept after their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    For(Duration),
    Forever,
}

impl Keep {
    /// What the API calls it.
    pub(crate) fn word(self) -> String {
        match self {
            Self::For(span) => format!("{}ms", span.as_millis()),
            Self::Forever => "never".to_owned(),
        }
    }
}

impl Deed {
    /// What the API calls it.
    const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Retry => "retry",
            Self::Remove => "delete",
            Self::Expire(_) => "expire",
        }
    }

    /// What people call it.
    const fn name(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            deed => deed.word(),
        }
    }

    /// The statuses that a filter may name.
    const fn accepts(self) -> &'static [&'static str] {
        match self {
            Self::Retry => &["running", "paused", "failed", "cancelled"],
            Self::Remove => &["pending", "succeeded", "failed", "cancelled"],
            deed => deed.applies_to(),
        }
    }

    /// The statuses of a filter that names none.
    const fn applies_to(self) -> &'static [&'static str] {
        match self {
            Self::Start => &["pending"],
            Self::Cancel => &["pending", "running", "paused"],
            Self::Pause => &["running"],
            Self::Resume => &["paused"],
            Self::Retry => &["failed", "cancelled"],
            Self::Remove => &["succeeded", "failed", "cancelled"],
            Self::Expire(_) => &STATUSES,
        }
    }

    /// Refuses statuses that it can never change.
    fn check(self, statuses: &[String]) -> Result<(), Failure> {
        let accepted = self.accepts();
        match statuses.iter().find(|status| !accepted.contains(&status.as_str())) {
            None => Ok(()),
            Some(status) => Err(Failure::usage(format!(
                "--status {status}: {} applies only to workflows that are {}",
                self.name(),
                accepted.join(", ")
            ))),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Page {
    matched: u64,
    done: u64,
    failed: Vec<Refused>,
    next_cursor: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Refused {
    id: String,
    error: Reason,
}

#[derive(Debug, Serialize, Deserialize)]
struct Reason {
    code: String,
    detail: String,
}

#[derive(Debug, Default)]
struct Outcome {
    matched: u64,
    done: u64,
    failed: Vec<Refused>,
}

impl Targets {
    /// These and no filter.
    pub(crate) fn named(ids: Vec<Which>) -> Self {
        Self { ids, statuses: Statuses::default(), chosen: Chosen::default(), yes: false, dry_run: false }
    }

    pub(crate) async fn each(&self, deed: Deed, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        if self.ids.is_empty() {
            self.check(screen)?;
            return self.all(deed, remote, screen).await;
        }
        for_each(&self.ids, async |which| match deed {
            Deed::Remove => remove(which, remote, screen).await,
            Deed::Expire(keep) => expire(which, keep, remote, screen).await,
            deed => act(&Ask::post(format!("{}:{}", which.path(remote).await?, deed.word()), ""), remote, screen).await,
        })
        .await
    }

    /// Refuses an action without ids and without a filter, and a form of output that it does not have.
    fn check(&self, screen: &Screen) -> Result<(), Failure> {
        if self.statuses.is_empty() && self.chosen.is_empty() {
            return Err(Failure::usage(
                "which workflows? Give their ids, or a filter: --status, --name, --tag, --since or --until",
            ));
        }
        if screen.is_name() {
            return Err(Failure::usage(
                "-o name: an action by filter prints numbers and no ids; `tidegate workflow list -o name` lists ids by filter",
            ));
        }
        Ok(())
    }

    async fn all(&self, deed: Deed, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        let statuses = self.statuses.or(deed.applies_to());
        deed.check(&statuses)?;
        // One moment for both, so that --since and --until mean the same when somebody took long to answer.
        let now = Moment::now();
        let counted: Counted = remote.read(&Ask::get(self.chosen.query(now)?.of("/v1/workflows:count"))).await?;
        let matched = statuses
            .iter()
            .filter_map(|status| counted.by_status.get(status))
            .fold(0, |sum: u64, count| sum.saturating_add(*count));
        if self.dry_run || matched == 0 {
            return self.told(deed, &Outcome { matched, ..Outcome::default() }, screen);
        }
        if !self.yes && !confirmed(deed, matched)? {
            return screen.line("nothing was changed").map(|()| Exit::Done);
        }
        let filter = self.chosen.filter(&statuses, now)?;
        let outcome = act_on_oldest(deed, &filter, matched, remote).await?;
        self.told(deed, &outcome, screen)
    }

    fn told(&self, deed: Deed, outcome: &Outcome, screen: &Screen) -> Result<Exit, Failure> {
        let Outcome { matched, done, failed } = outcome;
        let word = deed.name();
        let json = json!({
            "action": word, "matched": matched, "done": done, "failed": failed, "dry_run": self.dry_run,
        });
        let told = match (*matched, self.dry_run) {
            (0, _) => "no workflows\n".to_owned(),
            (_, true) => format!("{word}: {}, if this were not a dry run\n", workflows(*matched)),
            (_, false) => format!("{word}: {done} of {}\n", workflows(*matched)),
        };
        screen.object(&json.to_string(), &matched.to_string(), || Ok(told))?;
        for Refused { id, error } in failed.iter().take(TOLD) {
            complain(&Failure::new(Exit::Refused, format!("{id}: {}", error.detail)));
        }
        match failed.len() {
            0 => Ok(Exit::Done),
            many => Err(Failure::new(Exit::Refused, format!("{many} of {} refused", workflows(*matched)))),
        }
    }
}

fn workflows(number: u64) -> String {
    format!("{number} workflow{}", if number == 1 { "" } else { "s" })
}

/// Asks a person, if there is one.
fn confirmed(deed: Deed, matched: u64) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Ok(true);
    }
    if !io::stderr().is_terminal() {
        return Err(Failure::usage(
            "standard error is not a terminal, so you cannot be asked: give --yes or --dry-run",
        ));
    }
    let unread = |error| Failure::new(Exit::Output, format!("the question cannot be asked: {error}"));
    write!(io::stderr(), "{} {}? [y/N] ", deed.name(), workflows(matched)).map_err(unread)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(unread)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

async fn remove(which: &Which, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let id = which.id(remote).await?;
    remote.text(&Ask::delete(path(&id))).await?;
    let json = json!({ "id": id, "removed": true }).to_string();
    screen.object(&json, &id, || Ok(format!("{}  removed\n", printable(&id))))?;
    Ok(Exit::Done)
}

async fn expire(which: &Which, keep: Keep, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let id = which.id(remote).await?;
    let body = json!({ "after": keep.word() }).to_string();
    let text = remote.text(&Ask::post(format!("{}:expire", path(&id)), body)).await?;
    let kept = if screen.is_table() { kept(&remote.parse(&text)?, keep, remote).await? } else { String::new() };
    screen.object(&text, &id, || Ok(format!("{}  {kept}\n", printable(&id))))?;
    Ok(Exit::Done)
}

/// Until when a workflow is kept. Only the server knows the moment, so it is asked.
async fn kept(acted: &Acted, keep: Keep, remote: &Remote) -> Result<String, Failure> {
    let is_over = ["succeeded", "failed", "cancelled"].contains(&acted.status.as_str());
    Ok(match keep {
        Keep::Forever => "kept for ever".to_owned(),
        Keep::For(Duration::ZERO) => "removed when it is over".to_owned(),
        Keep::For(span) if !is_over => format!("kept for {} after its end", short(span)),
        Keep::For(_) => {
            let workflow: Summary = remote.read(&Ask::get(path(&acted.id))).await?;
            let until = |at: Moment| format!("kept until {}  {}", at.to_the_second(), at.relative(Moment::now()));
            workflow.expires_at.map(until).unwrap_or_default()
        }
    })
}

/// Acts on the oldest `most` of them, so that no more are changed than were counted.
async fn act_on_oldest(deed: Deed, filter: &serde_json::Value, most: u64, remote: &Remote) -> Result<Outcome, Failure> {
    let (mut outcome, mut cursor, mut empty) = (Outcome::default(), None, 0);
    while outcome.matched < most {
        let limit = (most - outcome.matched).min(MOST);
        let mut body = json!({ "action": deed.word(), "filter": filter, "limit": limit });
        if let Deed::Expire(keep) = deed {
            body["after"] = keep.word().into();
        }
        if let Some(cursor) = &cursor {
            body["cursor"] = json!(cursor);
        }
        let page: Page = remote.read(&Ask::post("/v1/workflows:bulk", body.to_string())).await?;
        outcome.matched = outcome.matched.saturating_add(page.matched);
        outcome.done = outcome.done.saturating_add(page.done);
        outcome.failed.extend(page.failed);
        empty = if page.matched == 0 { empty + 1 } else { 0 };
        // A server whose pages never end must not be asked for ever.
        if page.next_cursor.is_none() || page.next_cursor == cursor || empty == 2 {
            break;
        }
        cursor = page.next_cursor;
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_that_an_action_never_changes_are_refused() {
        let check = |deed: Deed, status: &str, expected: Option<&str>| {
            let found = deed.check(&[status.to_owned()]).err().map(|failure| failure.text);
            assert_eq!(found.as_deref(), expected, "{deed:?} {status}");
        };
        check(Deed::Remove, "failed", None);
        check(Deed::Remove, "pending", None);
        check(Deed::Retry, "running", None);
        check(Deed::Expire(Keep::Forever), "running", None);
        let remove =
            "--status running: remove applies only to workflows that are pending, succeeded, failed, cancelled";
        check(Deed::Remove, "running", Some(remove));
        check(Deed::Pause, "failed", Some("--status failed: pause applies only to workflows that are running"));
        assert_eq!((workflows(1), workflows(2)), ("1 workflow".to_owned(), "2 workflows".to_owned()));
    }
}
