//! Writes. All queued writes share one transaction, and so one sync of the disk.

mod apply;
mod lazy_statement;
mod sets;
pub(crate) mod space;

use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use self::apply::WorkflowStatements;
use self::space::FreePages;
use super::depths::{DepthChanges, Depths};
use super::file::presence::Presence;
use super::probe::{ProbeResult, probe};
use super::worker::RequestQueue;
use super::{ReadRequest, notes, permits, register};
use crate::codec::{Applied, Change, Format, StoreError, Write};
use crate::model::Partition;
use crate::store::EncodedNote as Note;
use crate::store::{NoteOutcome, PermitCount};

/// Changes at which a transaction takes no further requests: about 50 ms of work. The first request
/// of a group does not wait long for the last one, and the cost of the sync is shared by all.
pub(in crate::store) const GROUP_CHANGES: usize = 1_024;

/// A request to the thread that writes.
pub(super) enum WriteRequest {
    Apply(PendingWrite<(Partition, Arc<[Change]>), Vec<Applied>>),
    /// Returns the number of removed entries.
    Register(PendingWrite<register::RegisterWrite, u64>),
    Permits(PendingWrite<permits::PermitWrite, Vec<PermitCount>>),
    Notes(PendingWrite<Vec<Note>, Vec<NoteOutcome>>),
    /// Limits the number of pages of the file.
    LimitPages(PendingWrite<u32, ()>),
    /// Begins a migration from a schema version, or ends it.
    Migrate(PendingWrite<Option<u32>, ()>),
    Probe(PendingWrite<(), ProbeResult>),
    /// Counts the ready rows, unless the numbers are known.
    Count(PendingWrite<(), ()>),
    /// A read of a store that has one connection.
    Read(ReadRequest),
}

/// The input of a request, and its caller.
pub(super) struct PendingWrite<I, T> {
    input: I,
    /// The outcome, before its transaction is committed.
    outcome: Option<T>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<I, T> PendingWrite<I, T> {
    pub(super) fn new(input: I) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (answer, answered) = oneshot::channel();
        let pending = Self {
            input,
            outcome: None,
            answer,
        };
        (pending, answered)
    }

    fn run(&mut self, write: impl FnOnce(&I) -> Result<T, StoreError>) -> Result<(), StoreError> {
        self.outcome = Some(write(&self.input)?);
        Ok(())
    }

    /// Answers with the outcome, or with the error that prevented it. It has no effect if the caller
    /// has given up.
    fn answer(self, committed: Result<(), StoreError>) {
        // The caller's thread allocated the changes, and frees them cheaper.
        drop(self.input);
        let outcome = committed.map(|()| self.outcome.expect("a committed request was run"));
        drop(self.answer.send(outcome));
    }
}

/// The connection that writes, and the state that each commit updates.
pub(super) struct WriterState<'a> {
    connection: &'a Connection,
    presence: &'a Presence,
    depths: &'a Depths,
    tables: WorkflowStatements<'a>,
}

impl<'a> WriterState<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        presence: &'a Presence,
        depths: &'a Depths,
    ) -> Self {
        Self {
            connection,
            presence,
            depths,
            tables: WorkflowStatements::new(connection),
        }
    }
}

impl WriteRequest {
    fn changes(&self) -> usize {
        match self {
            Self::Apply(pending) => pending.input.1.len(),
            Self::LimitPages(_) | Self::Migrate(_) => 1,
            Self::Register(pending) => pending.input.entries(),
            Self::Permits(pending) => pending.input.permits(),
            Self::Notes(pending) => pending.input.len(),
            Self::Probe(_) | Self::Count(_) | Self::Read(_) => 0,
        }
    }

    /// Whether the request only deletes workflows or holders.
    fn only_deletes(&self) -> bool {
        let deletes = |change: &Change| matches!(change.write, Write::Delete(_));
        match self {
            Self::Apply(pending) => pending.input.1.iter().all(deletes),
            Self::Permits(pending) => pending.input.only_removes(),
            _ => false,
        }
    }

    /// Whether the request may fail so that others have room.
    fn is_optional(&self) -> bool {
        matches!(self, Self::Notes(_))
    }

    /// Whether the request writes nothing.
    fn only_reads(&self) -> bool {
        matches!(self, Self::Probe(_) | Self::Count(_) | Self::Read(_))
    }

    fn write(
        &mut self,
        connection: &Connection,
        tables: &mut WorkflowStatements<'_>,
    ) -> Result<(), StoreError> {
        match self {
            Self::Apply(pending) => pending.run(|(at, changes)| {
                changes
                    .iter()
                    .map(|change| tables.apply(*at, change))
                    .collect()
            }),
            Self::Register(pending) => pending.run(|change| change.write(connection)),
            Self::Permits(pending) => pending.run(|change| change.write(connection)),
            Self::Notes(pending) => pending.run(|notes| {
                notes
                    .iter()
                    .map(|note| notes::add(connection, note))
                    .collect()
            }),
            Self::LimitPages(pending) => pending.run(|pages| {
                // SQLite answers with the current limit, which is at least the size of the file.
                let sql = format!("PRAGMA max_page_count = {pages}");
                Ok(connection.query_row(&sql, [], |_| Ok(()))?)
            }),
            Self::Migrate(pending) => pending.run(|from| record_migration(connection, *from)),
            Self::Probe(_) | Self::Count(_) | Self::Read(_) => Ok(()),
        }
    }

    fn answer(self, committed: Result<(), StoreError>) {
        match self {
            Self::Apply(pending) => pending.answer(committed),
            Self::Register(pending) => pending.answer(committed),
            Self::Permits(pending) => pending.answer(committed),
            Self::Notes(pending) => pending.answer(committed),
            Self::LimitPages(pending) => pending.answer(committed),
            Self::Migrate(pending) => pending.answer(committed),
            Self::Probe(_) | Self::Count(_) | Self::Read(_) => {
                unreachable!("reads are answered apart")
            }
        }
    }
}

/// Records that a migration has begun or ended.
fn record_migration(connection: &Connection, from: Option<u32>) -> Result<(), StoreError> {
    match from {
        Some(from) => {
            // A migration that continues keeps the schema from which it began.
            let note = "INSERT OR IGNORE INTO store VALUES ('migrates_from', ?1)";
            connection.execute(note, [from])?;
            connection.pragma_update(None, "user_version", Format::LATEST.schema())?;
        }
        None => drop(connection.execute("DELETE FROM store WHERE name = 'migrates_from'", [])?),
    }
    Ok(())
}

/// Processes requests until the queue is closed.
pub(super) fn run(mut writer: WriterState<'_>, queue: &mut RequestQueue<WriteRequest>) {
    let mut space = FreePages::new();
    while let Some(first) = space.next(writer.connection, queue) {
        let mut changes = first.changes();
        let mut group = vec![first];
        while changes < GROUP_CHANGES
            && let Some(request) = queue.try_next()
        {
            changes += request.changes();
            group.push(request);
        }
        let (reads, group): (Vec<_>, Vec<_>) =
            group.into_iter().partition(WriteRequest::only_reads);
        if !group.is_empty() {
            commit(&mut writer, group);
            space.on_written();
        }
        answer_reads(&writer, reads);
    }
}

/// Answers requests that write nothing. All probes share one result.
fn answer_reads(writer: &WriterState<'_>, reads: Vec<WriteRequest>) {
    let mut probed: Option<ProbeResult> = None;
    for read_request in reads {
        match read_request {
            WriteRequest::Probe(pending) => {
                let probed =
                    probed.get_or_insert_with(|| probe(writer.connection, writer.presence));
                drop(pending.answer.send(Ok(probed.clone())));
            }
            WriteRequest::Count(pending) => {
                drop(pending.answer.send(writer.depths.count(writer.connection)));
            }
            WriteRequest::Read(read) => read(writer.connection),
            _ => unreachable!("all others write"),
        }
    }
}

/// Writes a group in one transaction and then answers. If the disk has too little room for all of
/// it, it is written without notes. If that fails, only the requests that remove data are written.
fn commit(writer: &mut WriterState<'_>, mut group: Vec<WriteRequest>) {
    let committed = write(writer, &mut group);
    let answer_all = |group: Vec<WriteRequest>| {
        for request in group {
            request.answer(committed.clone());
        }
    };
    let Err(StoreError::Unavailable { .. }) = committed else {
        return answer_all(group);
    };
    let has_notes = group.iter().any(WriteRequest::is_optional);
    let stays = |request: &WriteRequest| {
        if has_notes {
            !request.is_optional()
        } else {
            request.only_deletes()
        }
    };
    let (staying, others): (Vec<_>, Vec<_>) = group.into_iter().partition(stays);
    if others.is_empty() {
        return answer_all(staying);
    }
    answer_all(others);
    if !staying.is_empty() {
        commit(writer, staying);
    }
}

/// Writes all of a group. With an error other than [`StoreError::Unknown`], nothing is written.
fn write(writer: &mut WriterState<'_>, group: &mut [WriteRequest]) -> Result<(), StoreError> {
    let WriterState {
        connection,
        presence,
        depths,
        tables,
    } = writer;
    presence.check()?;
    tables.added = DepthChanges::default();
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // An error returns here, and the transaction is rolled back.
    for request in group {
        request.write(&transaction, tables)?;
    }
    if let Err(error) = transaction.commit() {
        depths.discard();
        return Err(match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) => error.into(),
            // A commit that could not be synced is rolled back, yet it may be on the disk: it is
            // valid again if the machine fails before the next commit.
            _ => StoreError::unknown(format!("sqlite: committing: {error}")),
        });
    }
    depths.add(std::mem::take(&mut tables.added));
    // A write is acknowledged only if it is in a file that a later process finds.
    presence
        .check()
        .map_err(|gone| StoreError::unknown(gone.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{CreationRecord, Put};
    use crate::model::{JobIndex, Timestamp, WorkflowId};
    use crate::store::sqlite::{file, read};

    fn create(number: u64, state: &[u8]) -> Change {
        let id = WorkflowId::new(Timestamp::from_micros(number * 1_000), Partition(0), 0);
        let meta = vec![1];
        let jobs = vec![(JobIndex(0), state.to_vec())];
        let put = Put {
            meta,
            jobs,
            creation: Some(CreationRecord::default()),
            ..Put::default()
        };
        Change {
            workflow: id,
            expected: None,
            small: false,
            write: Write::Put(Box::new(put)),
        }
    }

    /// Commits a group with one request for each change, and returns their answers.
    fn answers(
        (connection, presence): (&Connection, &Presence),
        changes: &[Change],
    ) -> Vec<Result<Vec<Applied>, StoreError>> {
        let request = |change: &Change| {
            let (pending, answered) = PendingWrite::new((Partition(0), [change.clone()].into()));
            (WriteRequest::Apply(pending), answered)
        };
        let (group, answered): (Vec<_>, Vec<_>) = changes.iter().map(request).unzip();
        commit(
            &mut WriterState::new(connection, presence, &Depths::default()),
            group,
        );
        answered
            .into_iter()
            .map(|mut answer| answer.try_recv().unwrap())
            .collect()
    }

    #[test]
    fn a_group_that_does_not_fit_on_the_disk_is_refused_whole_and_fits_later() {
        let directory = tempfile::tempdir().unwrap();
        let opened = file::open(&directory.path().join("store.sqlite"), 1).unwrap();
        let pages: i64 = opened
            .writer
            .pragma_query_value(None, "page_count", |row| row.get(0))
            .unwrap();
        let bound = |pages: i64| {
            opened
                .writer
                .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
                .unwrap()
        };
        bound(pages + 2);
        let group = [
            create(1, b"small"),
            create(2, &[7; 100_000]),
            create(3, b"small"),
        ];
        for answer in answers((&opened.writer, &opened.presence), &group) {
            let Err(StoreError::Unavailable { reason }) = answer else {
                panic!("{answer:?}")
            };
            assert!(reason.contains("full"), "{reason}");
        }
        for change in &group {
            assert_eq!(
                read::load(&opened.readers.as_ref().unwrap()[0], &change.workflow),
                Ok(None)
            );
        }
        bound(pages + 1_000);
        assert!(
            answers((&opened.writer, &opened.presence), &group)
                .iter()
                .all(|answer| *answer == Ok(vec![Applied::Done]))
        );
        assert!(group.iter().all(|change| {
            read::load(&opened.readers.as_ref().unwrap()[0], &change.workflow)
                .unwrap()
                .is_some()
        }));
    }

    #[test]
    fn notes_for_which_there_is_no_room_make_room_for_all_else() {
        let directory = tempfile::tempdir().unwrap();
        let opened = file::open(&directory.path().join("store.sqlite"), 1).unwrap();
        let change = create(1, b"small");
        let later = create(2, b"small");
        assert_eq!(
            answers(
                (&opened.writer, &opened.presence),
                std::slice::from_ref(&change)
            )[0],
            Ok(vec![Applied::Done])
        );
        let pages: i64 = opened
            .writer
            .pragma_query_value(None, "page_count", |row| row.get(0))
            .unwrap();
        opened
            .writer
            .pragma_update_and_check(None, "max_page_count", pages + 2, |_| Ok(()))
            .unwrap();
        let note = Note::with_lines(change.workflow, vec![7; 100_000]);
        let (notes, mut noted) = PendingWrite::new(vec![note]);
        let (applies, mut applied) = PendingWrite::new((Partition(0), [later].into()));
        let group = vec![WriteRequest::Notes(notes), WriteRequest::Apply(applies)];
        commit(
            &mut WriterState::new(&opened.writer, &opened.presence, &Depths::default()),
            group,
        );
        assert!(matches!(
            noted.try_recv().unwrap(),
            Err(StoreError::Unavailable { .. })
        ));
        assert_eq!(applied.try_recv().unwrap(), Ok(vec![Applied::Done]));
    }
}
