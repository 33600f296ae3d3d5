//! Rows of a store: those that a workflow calls for, and the owner and meaning of each.

use tidegate_workflow::rows::{ReadyJob, Row, workflow_in_row};
use tidegate_workflow::{RowSet, Snapshot, TimeIndex, WorkflowId, due_row, read_due_row};

/// All rows that the state of a workflow calls for.
pub(crate) fn expected_rows(snapshot: &Snapshot) -> Vec<(RowSet, Row)> {
    let (ready, index) = snapshot.rows();
    let id = snapshot.id();
    let meta = snapshot.meta();
    let due = [
        (TimeIndex::Timers, meta.timer),
        (TimeIndex::Expiries, meta.expires_at),
    ];
    let mut rows: Vec<_> = index.into_iter().map(|row| (RowSet::Index, row)).collect();
    rows.extend(ready.into_iter().map(|row| (RowSet::Ready, row)));
    rows.extend(
        due.into_iter()
            .filter_map(|(which, at)| Some((RowSet::Due(which), due_row(at?, id)))),
    );
    rows
}

/// The workflow that a row belongs to.
pub(crate) fn owner(set: RowSet, row: &[u8]) -> Option<WorkflowId> {
    match set {
        RowSet::Index => workflow_in_row(row),
        RowSet::Ready => ReadyJob::read(row).map(|entry| entry.workflow),
        RowSet::Due(_) => read_due_row(row).map(|(_, id)| id),
    }
}

pub(crate) fn row_text(set: RowSet, row: &[u8]) -> String {
    let named = |kind: &str| {
        let name = row.get(1..row.len().saturating_sub(18)).unwrap_or_default();
        format!(
            "index row of the {kind} '{}'",
            String::from_utf8_lossy(name)
        )
    };
    match (set, row.first()) {
        (RowSet::Index, Some(b'c')) => "index row of all workflows".to_owned(),
        (RowSet::Index, Some(b's')) => "index row of a status".to_owned(),
        (RowSet::Index, Some(b'n')) => named("name"),
        (RowSet::Index, Some(b't')) => named("tag"),
        (RowSet::Ready, _) => ready_row_text(row),
        (RowSet::Due(TimeIndex::Timers), _) => "timer".to_owned(),
        (RowSet::Due(TimeIndex::Expiries), _) => "expiry".to_owned(),
        (RowSet::Index, _) => "index row of nothing that there is".to_owned(),
    }
}

fn ready_row_text(row: &[u8]) -> String {
    match ReadyJob::read(row) {
        Some(ReadyJob { job, queue, .. }) => {
            format!("ready row of job {} in queue '{queue}'", job.0)
        }
        None => "ready row".to_owned(),
    }
}

/// The greatest row of equal length that sorts before `row`.
pub(crate) fn preceding_row(row: &[u8]) -> Row {
    let mut before = row.to_vec();
    for byte in before.iter_mut().rev() {
        let borrowed = *byte == 0;
        *byte = byte.wrapping_sub(1);
        if !borrowed {
            break;
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use tidegate_workflow::rows::Section;

    use super::*;

    #[test]
    fn the_row_before_differs_by_one() {
        let check = |row: &[u8], expected: &[u8]| assert_eq!(preceding_row(row), expected);
        check(&[1, 2, 3], &[1, 2, 2]);
        check(&[1, 2, 0], &[1, 1, 255]);
        check(&[1, 0, 0], &[0, 255, 255]);
    }

    #[test]
    fn rows_are_described_by_what_they_are_for() {
        let id = WorkflowId::first_at(tidegate_workflow::Timestamp::from_micros(1_000));
        let row = |section: Section<'_>| [section.prefix().as_slice(), id.bytes()].concat();
        let status = tidegate_workflow::Status::Running;
        let check =
            |section, expected| assert_eq!(row_text(RowSet::Index, &row(section)), expected);
        check(Section::All, "index row of all workflows");
        check(Section::Status(status), "index row of a status");
        check(Section::Name("é", status), "index row of the name 'é'");
        check(Section::Tag("a b", status), "index row of the tag 'a b'");
        assert_eq!(
            owner(RowSet::Index, &row(Section::Name("x", status))),
            Some(id)
        );
        assert_eq!(
            row_text(RowSet::Index, b""),
            "index row of nothing that there is"
        );
    }
}
