//! The workflows that an action applies to: those that are named, or all that a filter finds.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

use clap::{ArgGroup, Args};
use serde_json::json;

use super::bulk::{BulkOutcome, act_on_oldest};
use super::failure_filter::FailureFilter;
use super::list::{StatusFilter, WorkflowFilter};
use super::{act, for_each};
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::complete;
use crate::client::model::{ActionAnswer, STATUSES, WorkflowSummary};
use crate::client::workflow_ref::{WorkflowRef, path};
use crate::output::Screen;
use crate::output::counted::counted;
use crate::output::exit::{CommandResult, Exit, Failure, print_warning};
use crate::output::moment::{Moment, short};
use crate::output::printable::printable;

const NO_FILTER_TEXT: &str =
    "which workflows? Give their ids, or a filter: --status, --name, --tag, --since or --until";

const NO_IDS_TEXT: &str = "-o name: an action by filter prints numbers and no ids; `tidegate workflow list -o name` lists ids by filter";

/// Workflows by reference or by filter.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("filter").args(["status", "name", "tag", "since", "until", "yes", "dry_run"]).multiple(true))]
pub(crate) struct Targets {
    /// Workflows: ids or their first characters, key:KEY, or name:NAME for the newest of this name
    #[arg(conflicts_with = "filter", value_name = "ID", add = complete::workflow())]
    pub(crate) ids: Vec<WorkflowRef>,
    #[command(flatten)]
    statuses: StatusFilter,
    #[command(flatten)]
    chosen: WorkflowFilter,
    #[command(flatten)]
    confirmation: Confirmation,
}

/// Confirmation of an action on the workflows of a filter.
#[derive(Debug, Default, Args)]
pub(crate) struct Confirmation {
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
    Expire(Retention),
}

/// Retention time of workflows after their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retention {
    For(Duration),
    Forever,
}

impl Retention {
    /// The retention time in the API.
    pub(crate) fn api_text(self) -> String {
        match self {
            Self::For(span) => format!("{}ms", span.as_millis()),
            Self::Forever => "forever".to_owned(),
        }
    }
}

impl BulkAction {
    /// Name of the action in the API.
    pub(crate) const fn api_name(self) -> &'static str {
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
            action => action.api_name(),
        }
    }

    /// Statuses that a filter for this action may name.
    const fn accepts(self) -> &'static [&'static str] {
        match self {
            Self::Retry => &["running", "paused", "failed", "cancelled"],
            Self::Remove => &["pending", "succeeded", "failed", "cancelled"],
            action => action.applies_to(),
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
    fn check(self, statuses: &[String]) -> CommandResult<()> {
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
    pub(crate) fn named(ids: Vec<WorkflowRef>) -> Self {
        Self {
            ids,
            statuses: StatusFilter::default(),
            chosen: WorkflowFilter::default(),
            confirmation: Confirmation::default(),
        }
    }

    /// Failed workflows with a failed job.
    pub(crate) fn failed(failure: FailureFilter, confirmation: Confirmation) -> Self {
        Self {
            ids: Vec::new(),
            statuses: StatusFilter::failed(),
            chosen: WorkflowFilter::by_failure(failure),
            confirmation,
        }
    }

    pub(crate) async fn run_action(
        &self,
        action: BulkAction,
        remote: &ApiClient,
        screen: &Screen,
    ) -> CommandResult {
        if self.ids.is_empty() {
            self.check(screen)?;
            return self.run_on_filter(action, remote, screen).await;
        }
        for_each(&self.ids, screen, async |reference| match action {
            BulkAction::Remove => remove(reference, remote, screen).await,
            BulkAction::Expire(keep) => expire(reference, keep, remote, screen).await,
            action => {
                act(
                    format!("{}:{}", reference.path(remote).await?, action.api_name()),
                    String::new(),
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
    fn check(&self, screen: &Screen) -> CommandResult<()> {
        if self.statuses.is_empty() && self.chosen.is_empty() {
            return Err(Failure::usage(NO_FILTER_TEXT));
        }
        if screen.is_name() {
            return Err(Failure::usage(NO_IDS_TEXT));
        }
        Ok(())
    }

    async fn run_on_filter(
        &self,
        action: BulkAction,
        remote: &ApiClient,
        screen: &Screen,
    ) -> CommandResult {
        let statuses = self.statuses.or(action.applies_to());
        action.check(&statuses)?;
        // Both filters use one time, so that `--since` and `--until` have one meaning, however long
        // the answer takes.
        let now = Moment::now();
        let counted = self.chosen.count(now, remote).await?;
        if counted.unread > 0 {
            let unread = self::counted(counted.unread, "failed workflow");
            print_warning(&format!(
                "{unread} left alone: too large to look for the error"
            ));
        }
        let matched = counted.number(&statuses);
        let is_whole = counted.unread == 0 && counted.incomplete.is_none();
        if let Some(failure) = &self.chosen.failure
            && matched == 0
            && is_whole
        {
            return Err(failure.not_found(remote).await?);
        }
        let outcome = BulkOutcome::counted(matched, counted.incomplete);
        if self.confirmation.dry_run {
            return outcome.report(action, screen);
        }
        if matched > 0 && !self.confirmation.yes && !confirm(action, matched)? {
            return screen.line("nothing was changed").map(|()| Exit::Done);
        }
        // The limit is by the server's clock: workflows that are created before the answer were not
        // counted.
        let filter = self.chosen.filter(&statuses, now, counted.as_of)?;
        act_on_oldest(action, &filter, outcome, remote)
            .await
            .report(action, screen)
    }
}

/// Requests confirmation at the terminal. A program cannot confirm, so it needs `--yes`.
fn confirm(action: BulkAction, matched: u64) -> CommandResult<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let all = counted(matched, "workflow");
        let them = if matched == 1 { "it" } else { "them" };
        let text = format!(
            "{all} found, and there is no terminal for the question; add --yes to {} {them}",
            action.name()
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
        action.name(),
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

async fn remove(reference: &WorkflowRef, remote: &ApiClient, screen: &Screen) -> CommandResult {
    let id = reference.id(remote).await?;
    remote.text(&ApiRequest::delete(path(&id))).await?;
    let json = json!({ "id": id, "removed": true }).to_string();
    screen.object(&json, &id, || Ok(format!("{}  removed\n", printable(&id))))
}

async fn expire(
    reference: &WorkflowRef,
    keep: Retention,
    remote: &ApiClient,
    screen: &Screen,
) -> CommandResult {
    let id = reference.id(remote).await?;
    let body = json!({ "after": keep.api_text() }).to_string();
    let text = remote
        .text(&ApiRequest::post(format!("{}:expire", path(&id)), body))
        .await?;
    let kept = if screen.is_table() {
        retention_text(&remote.parse(&text)?, keep, remote).await?
    } else {
        String::new()
    };
    screen.object(&text, &id, || Ok(format!("{}  {kept}\n", printable(&id))))
}

/// Text about the retention of a workflow. Only the server knows the expiry time, so the workflow
/// is read again.
async fn retention_text(
    acted: &ActionAnswer,
    keep: Retention,
    remote: &ApiClient,
) -> CommandResult<String> {
    let is_over = ["succeeded", "failed", "cancelled"].contains(&acted.status.as_str());
    Ok(match keep {
        Retention::Forever => "kept for ever".to_owned(),
        Retention::For(Duration::ZERO) => "removed when it is over".to_owned(),
        Retention::For(span) if !is_over => format!("kept for {} after its end", short(span)),
        Retention::For(_) => {
            let workflow: WorkflowSummary = remote.get_json(path(&acted.id)).await?;
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
        let check = |action: BulkAction, status: &str, expected: Option<&str>| {
            let found = action
                .check(&[status.to_owned()])
                .err()
                .map(|failure| failure.text);
            assert_eq!(found.as_deref(), expected, "{action:?} {status}");
        };
        check(BulkAction::Remove, "failed", None);
        check(BulkAction::Remove, "pending", None);
        check(BulkAction::Retry, "running", None);
        check(BulkAction::Expire(Retention::Forever), "running", None);
        let remove = "--status running: remove applies only to workflows that are pending, succeeded, failed, cancelled";
        check(BulkAction::Remove, "running", Some(remove));
        check(
            BulkAction::Pause,
            "failed",
            Some("--status failed: pause applies only to workflows that are running"),
        );
    }
}
