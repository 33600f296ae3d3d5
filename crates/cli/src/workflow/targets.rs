//! The workflows that an action applies to: those that are named, or all that a filter finds.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::{ArgGroup, Args, ValueHint};
use serde_json::json;

use crate::client::exit::{Exit, Failure};
use crate::client::model::{Acted, STATUSES, Summary};
use crate::client::remote::{Ask, Remote};
use crate::client::which::{Which, path};
use crate::output::Screen;
use crate::output::counted::counted;
use crate::output::moment::{Moment, short};
use crate::output::printable::printable;
use crate::workflow::bulk::{Outcome, act_on_oldest};
use crate::workflow::list::{Chosen, Counted, Statuses};
use crate::workflow::{act, for_each};

/// Workflows by reference or by filter.
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
    /// With a filter: do not ask whether to go on; needed without a terminal
    #[arg(long, short)]
    yes: bool,
    /// With a filter: only say how many workflows it finds
    #[arg(long)]
    dry_run: bool,
}

/// Action on workflows that needs no further arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BulkAction {
    Start,
    Cancel,
    Pause,
    Resume,
    Retry,
    Remove,
    Expire(Keep),
}

/// Retention time of workflows after their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    For(Duration),
    Forever,
}

impl Keep {
    /// The retention time in the API.
    pub(crate) fn word(self) -> String {
        match self {
            Self::For(span) => format!("{}ms", span.as_millis()),
            Self::Forever => "forever".to_owned(),
        }
    }
}

impl BulkAction {
    /// Name of the action in the API.
    pub(crate) const fn word(self) -> &'static str {
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

    /// Name of the action for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            deed => deed.word(),
        }
    }

    /// Statuses that a filter for this action may name.
    const fn accepts(self) -> &'static [&'static str] {
        match self {
            Self::Retry => &["running", "paused", "failed", "cancelled"],
            Self::Remove => &["pending", "succeeded", "failed", "cancelled"],
            deed => deed.applies_to(),
        }
    }

    /// Statuses that a filter without statuses selects.
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

    /// Refuses statuses to which the action never applies.
    fn check(self, statuses: &[String]) -> Result<(), Failure> {
        let accepted = self.accepts();
        match statuses
            .iter()
            .find(|status| !accepted.contains(&status.as_str()))
        {
            None => Ok(()),
            Some(status) => Err(Failure::usage(format!(
                "--status {status}: {} applies only to workflows that are {}",
                self.name(),
                accepted.join(", ")
            ))),
        }
    }
}

impl Targets {
    /// Targets that are named, without a filter.
    pub(crate) fn named(ids: Vec<Which>) -> Self {
        Self {
            ids,
            statuses: Statuses::default(),
            chosen: Chosen::default(),
            yes: false,
            dry_run: false,
        }
    }

    pub(crate) async fn each(
        &self,
        deed: BulkAction,
        remote: &Remote,
        screen: &Screen,
    ) -> Result<Exit, Failure> {
        if self.ids.is_empty() {
            self.check(screen)?;
            return self.all(deed, remote, screen).await;
        }
        for_each(&self.ids, async |which| match deed {
            BulkAction::Remove => remove(which, remote, screen).await,
            BulkAction::Expire(keep) => expire(which, keep, remote, screen).await,
            deed => {
                act(
                    &Ask::post(format!("{}:{}", which.path(remote).await?, deed.word()), ""),
                    remote,
                    screen,
                )
                .await
            }
        })
        .await
    }

    /// Refuses an action without ids and without a filter, and an output format that the action
    /// does not have.
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

    async fn all(
        &self,
        deed: BulkAction,
        remote: &Remote,
        screen: &Screen,
    ) -> Result<Exit, Failure> {
        let statuses = self.statuses.or(deed.applies_to());
        deed.check(&statuses)?;
        // Both filters use one time, so that `--since` and `--until` have one meaning, however long
        // the answer takes.
        let now = Moment::now();
        let counted: Counted = remote
            .read(&Ask::get(self.chosen.query(now)?.of("/v1/workflows:count")))
            .await?;
        let matched = statuses
            .iter()
            .filter_map(|status| counted.by_status.get(status))
            .fold(0, |sum: u64, count| sum.saturating_add(*count));
        let outcome = Outcome::counted(matched, counted.incomplete);
        if self.dry_run {
            return outcome.told(deed, screen);
        }
        if matched > 0 && !self.yes && !confirmed(deed, matched)? {
            return screen.line("nothing was changed").map(|()| Exit::Done);
        }
        // The limit is by the server's clock: workflows that are created before the answer were not
        // counted.
        let filter = self.chosen.filter(&statuses, now, counted.as_of)?;
        act_on_oldest(deed, &filter, outcome, remote)
            .await
            .told(deed, screen)
    }
}

/// Requests confirmation at the terminal. A program cannot confirm, so it needs `--yes`.
fn confirmed(deed: BulkAction, matched: u64) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let all = counted(matched, "workflow");
        let them = if matched == 1 { "it" } else { "them" };
        let text = format!(
            "the filter finds {all}, and there is no terminal for the question; add --yes to {} {them}",
            deed.name()
        );
        return Err(Failure::usage(text));
    }
    let unread = |error| {
        Failure::new(
            Exit::Output,
            format!("the question cannot be asked: {error}"),
        )
    };
    write!(
        io::stderr(),
        "{} {}? [y/N] ",
        deed.name(),
        counted(matched, "workflow")
    )
    .map_err(unread)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(unread)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

async fn remove(which: &Which, remote: &Remote, screen: &Screen) -> Result<Exit, Failure> {
    let id = which.id(remote).await?;
    remote.text(&Ask::delete(path(&id))).await?;
    let json = json!({ "id": id, "removed": true }).to_string();
    screen.object(&json, &id, || Ok(format!("{}  removed\n", printable(&id))))?;
    Ok(Exit::Done)
}

async fn expire(
    which: &Which,
    keep: Keep,
    remote: &Remote,
    screen: &Screen,
) -> Result<Exit, Failure> {
    let id = which.id(remote).await?;
    let body = json!({ "after": keep.word() }).to_string();
    let text = remote
        .text(&Ask::post(format!("{}:expire", path(&id)), body))
        .await?;
    let kept = if screen.is_table() {
        kept(&remote.parse(&text)?, keep, remote).await?
    } else {
        String::new()
    };
    screen.object(&text, &id, || Ok(format!("{}  {kept}\n", printable(&id))))?;
    Ok(Exit::Done)
}

/// Text about the retention of a workflow. Only the server knows the expiry time, so the workflow
/// is read again.
async fn kept(acted: &Acted, keep: Keep, remote: &Remote) -> Result<String, Failure> {
    let is_over = ["succeeded", "failed", "cancelled"].contains(&acted.status.as_str());
    Ok(match keep {
        Keep::Forever => "kept for ever".to_owned(),
        Keep::For(Duration::ZERO) => "removed when it is over".to_owned(),
        Keep::For(span) if !is_over => format!("kept for {} after its end", short(span)),
        Keep::For(_) => {
            let workflow: Summary = remote.read(&Ask::get(path(&acted.id))).await?;
            let until = |at: Moment| {
                format!(
                    "kept until {}  {}",
                    at.to_the_second(),
                    at.relative(Moment::now())
                )
            };
            workflow.expires_at.map(until).unwrap_or_default()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_that_an_action_never_changes_are_refused() {
        let check = |deed: BulkAction, status: &str, expected: Option<&str>| {
            let found = deed
                .check(&[status.to_owned()])
                .err()
                .map(|failure| failure.text);
            assert_eq!(found.as_deref(), expected, "{deed:?} {status}");
        };
        check(BulkAction::Remove, "failed", None);
        check(BulkAction::Remove, "pending", None);
        check(BulkAction::Retry, "running", None);
        check(BulkAction::Expire(Keep::Forever), "running", None);
        let remove = "--status running: remove applies only to workflows that are pending, succeeded, failed, cancelled";
        check(BulkAction::Remove, "running", Some(remove));
        check(
            BulkAction::Pause,
            "failed",
            Some("--status failed: pause applies only to workflows that are running"),
        );
    }
}
