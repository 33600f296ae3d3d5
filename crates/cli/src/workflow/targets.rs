//! The workflows that a verb is for: those that are named, or all that a filter finds.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::{ArgGroup, Args, ValueHint};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::ask::exit::{Exit, Failure, complain};
use crate::ask::remote::{Ask, Remote};
use crate::ask::which::Which;
use crate::screen::Screen;
use crate::workflow::list::{Chosen, Counted, Statuses};
use crate::workflow::{act, for_each};

/// Failures that are told one by one.
const TOLD: usize = 20;
/// Most workflows of one request.
const MOST: u64 = 1_000;

/// Which workflows.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("filter").args(["status", "name", "tag", "since", "until"]).multiple(true))]
pub(crate) struct Targets {
    /// Workflows: ids or their first characters, key:KEY, or name:NAME for the newest of this name
    #[arg(required_unless_present = "filter", conflicts_with = "filter", value_name = "ID", value_hint = ValueHint::Other)]
    pub(crate) ids: Vec<Which>,
    #[command(flatten)]
    statuses: Statuses,
    #[command(flatten)]
    chosen: Chosen,
    /// With a filter: do not ask whether to go on
    #[arg(long, short, requires = "filter")]
    yes: bool,
    /// With a filter: only say how many workflows it finds
    #[arg(long, requires = "filter")]
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
        }
    }

    /// The statuses that it changes: those of a filter that names none.
    const fn applies_to(self) -> &'static [&'static str] {
        match self {
            Self::Start => &["pending"],
            Self::Cancel => &["pending", "running", "paused"],
            Self::Pause => &["running"],
            Self::Resume => &["paused"],
            Self::Retry => &["failed", "cancelled"],
            Self::Remove => &["succeeded", "failed", "cancelled"],
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
            return self.all(deed, remote, screen).await;
        }
        for_each(&self.ids, async |which| match deed {
            Deed::Remove => remove(which, remote, screen).await,
            deed => act(&Ask::post(format!("{}:{}", which.path(remote).await?, deed.word()), ""), remote, screen).await,
        })
        .await
    }

    async fn all(&self, deed: Deed, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
        let statuses = self.statuses.or(deed.applies_to());
        let counted: Counted = remote.read(&Ask::get(self.chosen.query()?.of("/v1/workflows:count"))).await?;
        let matched = statuses.iter().filter_map(|status| counted.by_status.get(status)).sum();
        if self.dry_run || matched == 0 {
            return self.told(deed, &Outcome { matched, ..Outcome::default() }, screen);
        }
        if !self.yes && !confirmed(deed, matched)? {
            return screen.line("nothing was changed").map(|()| Exit::Done);
        }
        let outcome = self.act(deed, &statuses, matched, remote).await?;
        self.told(deed, &outcome, screen)
    }

    /// Acts on the oldest `most` of them, so that what comes meanwhile is left alone.
    async fn act(&self, deed: Deed, statuses: &[String], most: u64, remote: &Remote) -> Result<Outcome, Failure> {
        let filter = self.chosen.filter(statuses)?;
        let (mut outcome, mut cursor) = (Outcome::default(), None);
        while outcome.matched < most {
            let limit = (most - outcome.matched).min(MOST);
            let mut body = json!({ "action": deed.word(), "filter": filter, "limit": limit });
            if let Some(cursor) = cursor {
                body["cursor"] = serde_json::Value::String(cursor);
            }
            let page: Page = remote.read(&Ask::post("/v1/workflows:bulk", body.to_string())).await?;
            outcome.matched += page.matched;
            outcome.done += page.done;
            outcome.failed.extend(page.failed);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(outcome)
    }

    fn told(&self, deed: Deed, outcome: &Outcome, screen: &Screen) -> Result<Exit, Failure> {
        let Outcome { matched, done, failed } = outcome;
        let word = deed.word();
        let json = json!({
            "action": word, "matched": matched, "done": done, "failed": failed, "dry_run": self.dry_run,
        });
        let told = match (*matched, self.dry_run) {
            (0, _) => "no workflows\n".to_owned(),
            (_, true) => format!("{word}: {matched} workflows, if this were not a dry run\n"),
            (_, false) => format!("{word}: {done} of {matched} workflows\n"),
        };
        screen.object(&json.to_string(), &matched.to_string(), || Ok(told))?;
        for Refused { id, error } in failed.iter().take(TOLD) {
            complain(&Failure::new(Exit::Refused, format!("{id}: {}", error.detail)));
        }
        match failed.len() {
            0 => Ok(Exit::Done),
            many => Err(Failure::new(Exit::Refused, format!("{many} of {matched} workflows were refused"))),
        }
    }
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
    write!(io::stderr(), "{} {matched} workflows? [y/N] ", deed.word()).map_err(unread)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(unread)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

async fn remove(which: &Which, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let id = which.id(remote).await?;
    remote.text(&Ask::delete(crate::ask::which::path(&id))).await?;
    let json = json!({ "id": id, "removed": true }).to_string();
    screen.object(&json, &id, || Ok(format!("{}  removed\n", crate::screen::printable::printable(&id))))?;
    Ok(Exit::Done)
}
