//! One action on all workflows that a filter finds.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::targets::BulkAction;
use crate::client::api_client::{ApiClient, ApiRequest};
use crate::client::model::Incomplete;
use crate::client::pages::EmptyPageCounter;
use crate::output::Screen;
use crate::output::counted::counted;
use crate::output::exit::{CommandResult, Exit, Failure, print_failure};
use crate::output::printable::printable;

/// Limit of failures that are printed one by one.
const MAX_SHOWN_FAILURES: usize = 20;
/// Limit of the server on workflows in one request.
const MAX_REQUEST_WORKFLOWS: u64 = 1_000;
/// HTTP status for a workflow that does not exist.
const NOT_FOUND: u16 = 404;

#[derive(Debug, Deserialize)]
struct BulkPage {
    matched: u64,
    done: u64,
    failed: Vec<FailedWorkflow>,
    next_cursor: Option<String>,
    incomplete: Option<Incomplete>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FailedWorkflow {
    id: String,
    /// HTTP status that a request for this workflow alone would have got.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    error: BulkError,
}

#[derive(Debug, Serialize, Deserialize)]
struct BulkError {
    code: String,
    detail: String,
}

/// Result of the action on all workflows.
#[derive(Debug)]
pub(crate) struct BulkOutcome {
    matched: u64,
    done: u64,
    failed: Vec<FailedWorkflow>,
    /// Partitions whose workflows were neither counted nor changed.
    incomplete: Option<Incomplete>,
    end: BulkEnd,
}

#[derive(Debug)]
enum BulkEnd {
    /// The workflows were only counted.
    DryRun,
    Complete,
    /// A request failed; the result for the remaining workflows is unknown.
    Aborted(Failure),
}

impl FailedWorkflow {
    fn is_fault(&self) -> bool {
        self.status.is_some_and(|status| status >= 500)
    }
}

/// Acts on the oldest workflows, at most on as many as were counted.
pub(crate) async fn act_on_oldest(
    action: BulkAction,
    filter: &Value,
    counted: BulkOutcome,
    remote: &ApiClient,
) -> BulkOutcome {
    let most = counted.matched;
    let mut outcome = BulkOutcome {
        end: BulkEnd::Complete,
        ..BulkOutcome::counted(0, counted.incomplete)
    };
    if let Err(failure) = outcome.run_pages(action, filter, most, remote).await {
        outcome.matched = most;
        outcome.end = BulkEnd::Aborted(failure);
    }
    outcome
}

impl BulkOutcome {
    /// The result of a count: `matched` workflows were found, and none was changed.
    pub(crate) fn counted(matched: u64, incomplete: Option<Incomplete>) -> Self {
        Self {
            matched,
            done: 0,
            failed: Vec::new(),
            incomplete,
            end: BulkEnd::DryRun,
        }
    }

    /// Applies the action to page after page of matches, up to `most`.
    async fn run_pages(
        &mut self,
        action: BulkAction,
        filter: &Value,
        most: u64,
        remote: &ApiClient,
    ) -> CommandResult<()> {
        let mut cursor = None;
        let mut empty_pages = EmptyPageCounter::default();
        while self.matched < most {
            let limit = (most - self.matched).min(MAX_REQUEST_WORKFLOWS);
            let mut body = json!({ "action": action.api_name(), "filter": filter, "limit": limit });
            if let BulkAction::Expire(keep) = action {
                body["after"] = keep.api_text().into();
            }
            if let Some(cursor) = &cursor {
                body["cursor"] = json!(cursor);
            }
            let page: BulkPage = remote
                .read(&ApiRequest::post("/v1/workflows:bulk", body.to_string()))
                .await?;
            let found = usize::try_from(page.matched).unwrap_or(usize::MAX);
            let next = self.add_page(page, action);
            if next.is_none() || next == cursor {
                break;
            }
            cursor = next;
            empty_pages.count_page(found)?;
        }
        Ok(())
    }

    /// Adds the result of one page, and returns the cursor of the next.
    fn add_page(&mut self, page: BulkPage, action: BulkAction) -> Option<String> {
        // Another client removed these workflows meanwhile, which is the requested result.
        let is_gone = |refused: &FailedWorkflow| {
            action == BulkAction::Remove && refused.status == Some(NOT_FOUND)
        };
        let (gone, failed): (Vec<FailedWorkflow>, Vec<FailedWorkflow>) =
            page.failed.into_iter().partition(is_gone);
        self.matched = self.matched.saturating_add(page.matched);
        self.done = self
            .done
            .saturating_add(page.done)
            .saturating_add(gone.len() as u64);
        self.failed.extend(failed);
        self.incomplete = page.incomplete.or(self.incomplete.take());
        page.next_cursor
    }

    /// Prints the result, and returns the exit code.
    pub(crate) fn report(self, action: BulkAction, screen: &Screen) -> CommandResult {
        let Self {
            matched,
            done,
            failed,
            incomplete,
            end,
        } = &self;
        let is_dry = matches!(end, BulkEnd::DryRun);
        let answered = *done > 0 || !failed.is_empty();
        if answered || !matches!(end, BulkEnd::Aborted(_)) {
            let mut json = json!({
                "action": action.name(), "matched": matched, "done": done, "failed": failed, "dry_run": is_dry,
            });
            if let Some(incomplete) = incomplete {
                json["incomplete"] = json!(incomplete);
            }
            screen.object(&json.to_string(), &matched.to_string(), || {
                Ok(self.line(action))
            })?;
        }
        for FailedWorkflow { id, error, .. } in failed.iter().take(MAX_SHOWN_FAILURES) {
            // Each failure is one line, whatever characters its texts contain.
            let text = format!("{}: {}", printable(id), printable(&error.detail));
            print_failure(&Failure::new(Exit::Refused, text), screen.failure_details());
        }
        self.exit()
    }

    fn line(&self, action: BulkAction) -> String {
        let word = action.name();
        let all = counted(self.matched, "workflow");
        let done = self.done;
        match (&self.end, self.matched) {
            (BulkEnd::Aborted(_), _) => format!("{word}: {done} of {all}, then it broke off\n"),
            (_, 0) => "no workflows\n".to_owned(),
            (BulkEnd::DryRun, _) => format!("{word}: {all}, if this were not a dry run\n"),
            (BulkEnd::Complete, _) => format!("{word}: {done} of {all}\n"),
        }
    }

    fn exit(self) -> CommandResult {
        let all = counted(self.matched, "workflow");
        let many = self.failed.len();
        let faults = self
            .failed
            .iter()
            .filter(|refused| refused.is_fault())
            .count();
        match (self.end, many, faults) {
            (BulkEnd::Aborted(failure), _, _) => Err(failure),
            (_, 0, _) => Incomplete::exit(self.incomplete.as_ref()),
            (_, _, 0) => Err(Failure::new(
                Exit::Refused,
                format!("{many} of {all} refused"),
            )),
            _ => Err(Failure::unavailable(format!(
                "{many} of {all} failed, {faults} of them by a fault of the server"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16) -> FailedWorkflow {
        let error = BulkError {
            code: "code".to_owned(),
            detail: "detail".to_owned(),
        };
        FailedWorkflow {
            id: "id".to_owned(),
            status: Some(status),
            error,
        }
    }

    #[test]
    fn the_gravest_failure_decides_how_it_ends() {
        let check = |action: BulkAction, statuses: &[u16], exit: Exit, expected: u64| {
            let failed: Vec<FailedWorkflow> = statuses.iter().copied().map(refused).collect();
            let mut outcome = BulkOutcome {
                end: BulkEnd::Complete,
                ..BulkOutcome::counted(0, None)
            };
            let done = 3 - failed.len() as u64;
            outcome.add_page(
                BulkPage {
                    matched: 3,
                    done,
                    failed,
                    next_cursor: None,
                    incomplete: None,
                },
                action,
            );
            assert_eq!(outcome.done, expected, "{statuses:?}");
            assert_eq!(
                outcome.exit().unwrap_or_else(|failure| failure.exit),
                exit,
                "{statuses:?}"
            );
        };
        check(BulkAction::Cancel, &[], Exit::Done, 3);
        check(BulkAction::Cancel, &[409], Exit::Refused, 2);
        check(BulkAction::Cancel, &[404], Exit::Refused, 2);
        check(BulkAction::Cancel, &[503, 409], Exit::Unavailable, 1);
        check(BulkAction::Remove, &[404, 404], Exit::Done, 3);
        check(BulkAction::Remove, &[404, 409], Exit::Refused, 2);
    }
}
