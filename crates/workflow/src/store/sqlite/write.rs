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
use crate::codec::change::{Applied, Change, Write};
use crate::codec::format::Format;
use crate::model::id::Partition;
use crate::store::error::StoreError;
use crate::store::notes::{EncodedNote as Note, NoteOutcome};
use crate::store::permits::PermitCount;
use crate::store::query::Register;

/// Changes at which a transaction takes no further requests: about 50 ms of work. The first request
/// of a group does not wait long for the last one, and the cost of the sync is shared by all.
pub(in crate::store) const GROUP_CHANGES: usize = 1_024;

/// A request to the thread that writes.
pub(super) enum WriteRequest {
    Apply {
        partition: Partition,
        changes: Arc<[Change]>,
        answer: AnswerSender<Vec<Applied>>,
    },
    Register {
        register: Register,
        change: register::RegisterWrite,
        answer: AnswerSender<u64>,
    },
    Permits {
        change: permits::PermitWrite,
        answer: AnswerSender<Vec<PermitCount>>,
    },
    Notes {
        notes: Vec<Note>,
        answer: AnswerSender<Vec<NoteOutcome>>,
    },
    /// Limits the number of pages of the file.
    LimitPages {
        pages: u32,
        answer: AnswerSender<()>,
    },
    /// Begins a migration from a schema version, or ends it.
    Migrate {
        from: Option<u32>,
        answer: AnswerSender<()>,
    },
    Probe {
        answer: AnswerSender<ProbeResult>,
    },
    /// Counts the ready rows, unless the numbers are known.
    Count {
        answer: AnswerSender<()>,
    },
    /// A read of a store that has one connection.
    Read(ReadRequest),
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

type AnswerSender<T> = oneshot::Sender<Result<T, StoreError>>;

/// The outcome of a request before its transaction is committed.
enum RequestOutcome {
    Applied(Vec<Applied>),
    /// Number of removed entries.
    RegisterWritten(u64),
    PermitsWritten(Vec<PermitCount>),
    NotesAdded(Vec<NoteOutcome>),
    Done,
    /// Nothing was written.
    NothingWritten,
}

impl WriteRequest {
    fn changes(&self) -> usize {
        match self {
            Self::Apply { changes, .. } => changes.len(),
            Self::LimitPages { .. } | Self::Migrate { .. } => 1,
            Self::Register { change, .. } => change.entries(),
            Self::Permits { change, .. } => change.permits(),
            Self::Notes { notes, .. } => notes.len(),
            Self::Probe { .. } | Self::Count { .. } | Self::Read(_) => 0,
        }
    }

    /// Whether the request only deletes workflows or holders.
    fn only_deletes(&self) -> bool {
        let frees = |changes: &[Change]| {
            changes
                .iter()
                .all(|change| matches!(change.write, Write::Delete(_)))
        };
        match self {
            Self::Apply { changes, .. } => frees(changes),
            Self::Permits { change, .. } => change.only_removes(),
            _ => false,
        }
    }

    /// Whether the request may fail so that others have room.
    fn is_optional(&self) -> bool {
        matches!(self, Self::Notes { .. })
    }

    /// Whether the request writes nothing.
    fn only_reads(&self) -> bool {
        matches!(
            self,
            Self::Probe { .. } | Self::Count { .. } | Self::Read(_)
        )
    }

    fn write(
        &self,
        connection: &Connection,
        tables: &mut WorkflowStatements<'_>,
    ) -> Result<RequestOutcome, StoreError> {
        match self {
            Self::Apply {
                partition, changes, ..
            } => {
                let applied = changes
                    .iter()
                    .map(|change| tables.apply(*partition, change));
                Ok(RequestOutcome::Applied(applied.collect::<Result<_, _>>()?))
            }
            Self::Register {
                register, change, ..
            } => Ok(RequestOutcome::RegisterWritten(
                change.write(connection, *register)?,
            )),
            Self::Permits { change, .. } => {
                Ok(RequestOutcome::PermitsWritten(change.write(connection)?))
            }
            Self::Notes { notes, .. } => {
                let noted = notes.iter().map(|note| notes::add(connection, note));
                Ok(RequestOutcome::NotesAdded(noted.collect::<Result<_, _>>()?))
            }
            Self::LimitPages { pages, .. } => {
                // SQLite answers with the current limit, which is at least the size of the file.
                connection.query_row(
                    &format!("PRAGMA max_page_count = {pages}"),
                    [],
                    |_| Ok(()),
                )?;
                Ok(RequestOutcome::Done)
            }
            Self::Migrate { from, .. } => {
                record_migration(connection, *from)?;
                Ok(RequestOutcome::Done)
            }
            Self::Probe { .. } | Self::Count { .. } | Self::Read(_) => {
                Ok(RequestOutcome::NothingWritten)
            }
        }
    }

    /// Answers a request. It has no effect if the caller has given up.
    fn answer(self, done: Result<RequestOutcome, StoreError>) {
        match (self, done) {
            (
                Self::Apply {
                    answer, changes, ..
                },
                Ok(RequestOutcome::Applied(applied)),
            ) => {
                // The caller's thread allocated the changes, and frees them cheaper.
                drop(changes);
                drop(answer.send(Ok(applied)));
            }
            (Self::Apply { answer, .. }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Probe { answer }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Register { answer, .. }, Ok(RequestOutcome::RegisterWritten(removed))) => {
                drop(answer.send(Ok(removed)))
            }
            (Self::Register { answer, .. }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Permits { answer, .. }, Ok(RequestOutcome::PermitsWritten(held))) => {
                drop(answer.send(Ok(held)))
            }
            (Self::Permits { answer, .. }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Notes { answer, .. }, Ok(RequestOutcome::NotesAdded(noted))) => {
                drop(answer.send(Ok(noted)))
            }
            (Self::Notes { answer, .. }, Err(error)) => drop(answer.send(Err(error))),
            (
                Self::Apply { .. }
                | Self::Probe { .. }
                | Self::Register { .. }
                | Self::Permits { .. }
                | Self::Notes { .. },
                Ok(_),
            ) => {
                unreachable!("a request is done as what it is")
            }
            (
                Self::LimitPages { answer, .. }
                | Self::Migrate { answer, .. }
                | Self::Count { answer },
                done,
            ) => {
                drop(answer.send(done.map(drop)));
            }
            (Self::Read(_), _) => unreachable!("a read sends its own answer"),
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
            WriteRequest::Probe { answer } => {
                let probed =
                    probed.get_or_insert_with(|| probe(writer.connection, writer.presence));
                let _left = answer.send(Ok(probed.clone()));
            }
            WriteRequest::Read(read) => read(writer.connection),
            read_request => {
                let counted = writer.depths.count(writer.connection);
                read_request.answer(counted.map(|()| RequestOutcome::Done));
            }
        }
    }
}

/// Writes a group in one transaction and then answers. If the disk has too little room for all of
/// it, it is written without notes. If that fails, only the requests that remove data are written.
fn commit(writer: &mut WriterState<'_>, group: Vec<WriteRequest>) {
    match write(writer, &group) {
        Ok(done) => group
            .into_iter()
            .zip(done)
            .for_each(|(request, done)| request.answer(Ok(done))),
        Err(error) => {
            let notes = group.iter().any(WriteRequest::is_optional);
            let stays = |request: &WriteRequest| {
                if notes {
                    !request.is_optional()
                } else {
                    request.only_deletes()
                }
            };
            let (staying, others): (Vec<_>, Vec<_>) = group.into_iter().partition(stays);
            let retries = !others.is_empty()
                && !staying.is_empty()
                && matches!(error, StoreError::Unavailable { .. });
            others
                .into_iter()
                .for_each(|request| request.answer(Err(error.clone())));
            if retries {
                commit(writer, staying);
            } else {
                for request in staying {
                    request.answer(Err(error.clone()));
                }
            }
        }
    }
}

/// Writes all of a group. With an error other than [`StoreError::Unknown`], nothing is written.
fn write(
    writer: &mut WriterState<'_>,
    group: &[WriteRequest],
) -> Result<Vec<RequestOutcome>, StoreError> {
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
    let done = group
        .iter()
        .map(|request| request.write(&transaction, tables))
        .collect::<Result<_, _>>()?;
    let committed = transaction.commit();
    match &committed {
        Ok(()) => depths.add(std::mem::take(&mut tables.added)),
        Err(_) => depths.discard(),
    }
    match committed {
        // A write is acknowledged only if it is in a file that a later process finds.
        Ok(()) => match presence.check() {
            Ok(()) => Ok(done),
            Err(gone) => Err(StoreError::Unknown {
                reason: gone.to_string(),
            }),
        },
        Err(error) => Err(match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) => error.into(),
            // A commit that could not be synced is rolled back, yet it may be on the disk: it is
            // valid again if the machine fails before the next commit.
            _ => StoreError::Unknown {
                reason: format!("sqlite: committing: {error}"),
            },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::change::{CreationRecord, Put};
    use crate::model::id::{JobIndex, WorkflowId};
    use crate::model::time::Timestamp;
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
            let (answer, answered) = oneshot::channel();
            (
                WriteRequest::Apply {
                    partition: Partition(0),
                    changes: [change.clone()].into(),
                    answer,
                },
                answered,
            )
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
                read::load(&opened.readers.as_ref().unwrap()[0], change.workflow),
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
            read::load(&opened.readers.as_ref().unwrap()[0], change.workflow)
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
        let (answer, mut noted) = oneshot::channel();
        let (applies, mut applied) = oneshot::channel();
        let group = vec![
            WriteRequest::Notes {
                notes: vec![note],
                answer,
            },
            WriteRequest::Apply {
                partition: Partition(0),
                changes: [later].into(),
                answer: applies,
            },
        ];
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
