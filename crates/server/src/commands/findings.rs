//! Findings of `tidegate store check`, and their repair.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate_cli::{Exit, Screen, Table};
use tidegate_workflow::WorkflowId;

/// Limit of findings that are kept for the report; a person reads no more.
const MAX_SHOWN_FINDINGS: usize = 1_000;

/// State of a finding at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolution {
    /// Not repaired.
    Left,
    Repaired,
}

impl Resolution {
    /// Whether a finding is repaired, in a table for people.
    fn word(self) -> &'static str {
        match self {
            Self::Left => "no",
            Self::Repaired => "yes",
        }
    }
}

/// A mismatch between the rows and the state of a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    workflow: Option<WorkflowId>,
    what: String,
    resolution: Resolution,
}

/// All findings in a store.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The first findings, at most `MAX_SHOWN_FINDINGS`.
    shown: Vec<Finding>,
    left: u64,
    repaired: u64,
    /// Whether workflows without index rows could not be searched.
    pub(super) states_unread: bool,
}

impl Findings {
    pub(super) fn add(
        &mut self,
        workflow: Option<WorkflowId>,
        what: String,
        resolution: Resolution,
    ) {
        match resolution {
            Resolution::Left => self.left += 1,
            Resolution::Repaired => self.repaired += 1,
        }
        if self.shown.len() < MAX_SHOWN_FINDINGS {
            self.shown.push(Finding {
                workflow,
                what,
                resolution,
            });
        }
    }

    /// Whether the list of findings is full.
    pub(super) fn is_full(&self) -> bool {
        self.shown.len() == MAX_SHOWN_FINDINGS
    }

    /// Success if no finding is left, otherwise failure.
    pub(super) fn exit(&self) -> Exit {
        if self.left == 0 {
            Exit::Done
        } else {
            Exit::Failed
        }
    }

    pub(super) fn json(&self, workflows: u64, rows: u64) -> Value {
        let findings = self.shown.iter().map(
            |Finding {
                 workflow,
                 what,
                 resolution,
             }| {
                let workflow = workflow.map(|id| id.to_string());
                json!({ "workflow": workflow, "what": what, "repaired": *resolution == Resolution::Repaired })
            },
        );
        let findings = findings.collect::<Vec<_>>();
        let repaired = self.repaired;
        let left = self.left;
        json!({
            "workflows": workflows, "rows": rows, "findings": findings, "repaired": repaired, "left": left,
            "all_states_read": !self.states_unread,
        })
    }

    /// Ids of the workflows with findings that are left, one per line.
    pub(super) fn names(&self) -> String {
        let left = self
            .shown
            .iter()
            .filter(|finding| finding.resolution == Resolution::Left);
        let ids: BTreeSet<_> = left.filter_map(|finding| finding.workflow).collect();
        ids.into_iter()
            .map(|id| id.to_string())
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Table for people. `seen` describes the scanned rows and workflows.
    pub(super) fn table(&self, screen: &Screen, seen: &str) -> String {
        let Self {
            shown,
            left,
            repaired,
            states_unread,
        } = self;
        let all = left + repaired;
        let unread = if *states_unread {
            "Workflows that no row leads to were not looked for: redis does not permit SCAN\n"
        } else {
            ""
        };
        if all == 0 {
            return format!("ok: {seen}\n{unread}");
        }
        let mut table = Table::new(&["WORKFLOW", "WHAT IS WRONG", "REPAIRED"]);
        for Finding {
            workflow,
            what,
            resolution,
        } in shown
        {
            let workflow = workflow.map_or_else(|| "-".to_owned(), |id| id.to_string());
            table.add_row(vec![workflow.into(), what.into(), resolution.word().into()]);
        }
        let more = if self.is_full() {
            ". Not all are shown"
        } else {
            ""
        };
        format!(
            "{}\n{all} findings, {repaired} repaired, {seen}{more}\n{unread}",
            table.text(screen)
        )
    }
}
