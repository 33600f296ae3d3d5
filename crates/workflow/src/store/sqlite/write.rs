//! Writes. All queued writes share one transaction, and so one sync of the disk.

mod apply;
mod kept;
mod sets;
pub(super) mod space;

use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use self::apply::Tables;
use self::space::Space;
use super::Read;
use super::depths::{Added, Depths};
use super::notes;
use super::permits;
use super::presence::Presence;
use super::probe::{Probed, probe};
use super::register;
use super::worker::Jobs;
use crate::codec::change::{Applied, Change, Write};
use crate::codec::format::Format;
use crate::id::Partition;
use crate::store::error::StoreError;
use crate::store::notes::{Noted, Written as Note};
use crate::store::permits::PermitCount;
use crate::store::query::Register;

/// Changes at which a transaction takes no further requests: about 50 ms of work. The first request
/// of a group does not wait long for the last one, and the cost of the sync is shared by all.
pub(in crate::store) const GROUP: usize = 1_024;

/// A request to the thread that writes.
pub(super) enum Request {
    Apply {
        partition: Partition,
        changes: Arc<[Change]>,
        answer: Answer<Vec<Applied>>,
    },
    Register {
        register: Register,
        change: register::Change,
        answer: Answer<u64>,
    },
    Holders {
        change: permits::Change,
        answer: Answer<Vec<PermitCount>>,
    },
    Notes {
        notes: Vec<Note>,
        answer: Answer<Vec<Noted>>,
    },
    /// Limits the number of pages of the file.
    Bound {
        pages: u32,
        answer: Answer<()>,
    },
    /// Begins a migration from a schema version, or ends it.
    Migrate {
        from: Option<u32>,
        answer: Answer<()>,
    },
    Probe {
        answer: Answer<Probed>,
    },
    /// Counts the ready rows, unless the numbers are known.
    Count {
        answer: Answer<()>,
    },
    /// A read of a store that has one connection.
    Read(Read),
}

/// The connection that writes, and the state that each commit updates.
pub(super) struct Written<'a> {
    connection: &'a Connection,
    presence: &'a Presence,
    depths: &'a Depths,
    tables: Tables<'a>,
}

impl<'a> Written<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        presence: &'a Presence,
        depths: &'a Depths,
    ) -> Self {
        Self {
            connection,
            presence,
            depths,
            tables: Tables::new(connection),
        }
    }
}

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// The outcome of a request before its transaction is committed.
enum Done {
    Applied(Vec<Applied>),
    /// Number of removed entries.
    Registered(u64),
    Held(Vec<PermitCount>),
    Noted(Vec<Noted>),
    Entered,
    /// Nothing was written.
    Asked,
}

impl Request {
    fn changes(&self) -> usize {
        match self {
            Self::Apply { changes, .. } => changes.len(),
            Self::Bound { .. } | Self::Migrate { .. } => 1,
            Self::Register { change, .. } => change.entries(),
            Self::Holders { change, .. } => change.places(),
            Self::Notes { notes, .. } => notes.len(),
            Self::Probe { .. } | Self::Count { .. } | Self::Read(_) => 0,
        }
    }

    /// Whether the request only deletes workflows or holders.
    fn frees(&self) -> bool {
        let frees = |changes: &[Change]| {
            changes
                .iter()
                .all(|change| matches!(change.write, Write::Delete(_)))
        };
        match self {
            Self::Apply { changes, .. } => frees(changes),
            Self::Holders { change, .. } => change.frees(),
            _ => false,
        }
    }

    /// Whether the request may fail so that others have room.
    fn gives_way(&self) -> bool {
        matches!(self, Self::Notes { .. })
    }

    /// Whether the request writes nothing.
    fn asks(&self) -> bool {
        matches!(
            self,
            Self::Probe { .. } | Self::Count { .. } | Self::Read(_)
        )
    }

    fn write(&self, connection: &Connection, tables: &mut Tables<'_>) -> Result<Done, StoreError> {
        match self {
            Self::Apply {
                partition, changes, ..
            } => {
                let applied = changes
                    .iter()
                    .map(|change| tables.apply(*partition, change));
                Ok(Done::Applied(applied.collect::<Result<_, _>>()?))
            }
            Self::Register {
                register, change, ..
            } => Ok(Done::Registered(change.write(connection, *register)?)),
            Self::Holders { change, .. } => Ok(Done::Held(change.write(connection)?)),
            Self::Notes { notes, .. } => {
                let noted = notes.iter().map(|note| notes::add(connection, note));
                Ok(Done::Noted(noted.collect::<Result<_, _>>()?))
            }
            Self::Bound { pages, .. } => {
                // SQLite answers with the current limit, which is at least the size of the file.
                connection.query_row(
                    &format!("PRAGMA max_page_count = {pages}"),
                    [],
                    |_| Ok(()),
                )?;
                Ok(Done::Entered)
            }
            Self::Migrate { from, .. } => {
                migrate(connection, *from)?;
                Ok(Done::Entered)
            }
            Self::Probe { .. } | Self::Count { .. } | Self::Read(_) => Ok(Done::Asked),
        }
    }

    /// Answers a request. It has no effect if the caller has given up.
    fn answer(self, done: Result<Done, StoreError>) {
        match (self, done) {
            (
                Self::Apply {
                    answer, changes, ..
                },
                Ok(Done::Applied(applied)),
            ) => {
                // The caller's thread allocated the changes, and frees them cheaper.
                drop(changes);
                drop(answer.send(Ok(applied)));
            }
            (Self::Apply { answer, .. }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Probe { answer }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Register { answer, .. }, Ok(Done::Registered(removed))) => {
                drop(answer.send(Ok(removed)))
            }
            (Self::Register { answer, .. }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Holders { answer, .. }, Ok(Done::Held(held))) => drop(answer.send(Ok(held))),
            (Self::Holders { answer, .. }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Notes { answer, .. }, Ok(Done::Noted(noted))) => drop(answer.send(Ok(noted))),
            (Self::Notes { answer, .. }, Err(error)) => drop(answer.send(Err(error))),
            (
                Self::Apply { .. }
                | Self::Probe { .. }
                | Self::Register { .. }
                | Self::Holders { .. }
                | Self::Notes { .. },
                Ok(_),
            ) => {
                unreachable!("a request is done as what it is")
            }
            (
                Self::Bound { answer, .. } | Self::Migrate { answer, .. } | Self::Count { answer },
                done,
            ) => {
                drop(answer.send(done.map(drop)));
            }
            (Self::Read(_), _) => unreachable!("a read sends its own answer"),
        }
    }
}

/// Records that a migration has begun or ended.
fn migrate(connection: &Connection, from: Option<u32>) -> Result<(), StoreError> {
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
pub(super) fn run(mut written: Written<'_>, jobs: &mut Jobs<Request>) {
    let mut space = Space::unknown();
    while let Some(first) = space.next(written.connection, jobs) {
        let mut changes = first.changes();
        let mut group = vec![first];
        while changes < GROUP
            && let Some(request) = jobs.waiting()
        {
            changes += request.changes();
            group.push(request);
        }
        let (questions, group): (Vec<_>, Vec<_>) = group.into_iter().partition(Request::asks);
        if !group.is_empty() {
            commit(&mut written, group);
            space.note_written();
        }
        answer_questions(&written, questions);
    }
}

/// Answers requests that write nothing. All probes share one result.
fn answer_questions(written: &Written<'_>, questions: Vec<Request>) {
    let mut probed: Option<Probed> = None;
    for question in questions {
        match question {
            Request::Probe { answer } => {
                let probed =
                    probed.get_or_insert_with(|| probe(written.connection, written.presence));
                let _left = answer.send(Ok(probed.clone()));
            }
            Request::Read(read) => read(written.connection),
            question => {
                let counted = written.depths.count(written.connection);
                question.answer(counted.map(|()| Done::Entered));
            }
        }
    }
}

/// Writes a group in one transaction and then answers. If the disk has too little room for all of
/// it, it is written without notes. If that fails, only the requests that remove data are written.
fn commit(written: &mut Written<'_>, group: Vec<Request>) {
    match write(written, &group) {
        Ok(done) => group
            .into_iter()
            .zip(done)
            .for_each(|(request, done)| request.answer(Ok(done))),
        Err(error) => {
            let notes = group.iter().any(Request::gives_way);
            let stays = |request: &Request| {
                if notes {
                    !request.gives_way()
                } else {
                    request.frees()
                }
            };
            let (staying, others): (Vec<_>, Vec<_>) = group.into_iter().partition(stays);
            let again = !others.is_empty()
                && !staying.is_empty()
                && matches!(error, StoreError::Unavailable { .. });
            others
                .into_iter()
                .for_each(|request| request.answer(Err(error.clone())));
            if again {
                commit(written, staying);
            } else {
                for request in staying {
                    request.answer(Err(error.clone()));
                }
            }
        }
    }
}

/// Writes all of a group. With an error other than [`StoreError::Unknown`], nothing is written.
fn write(written: &mut Written<'_>, group: &[Request]) -> Result<Vec<Done>, StoreError> {
    let Written {
        connection,
        presence,
        depths,
        tables,
    } = written;
    presence.check()?;
    tables.added = Added::default();
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // An error returns here, and the transaction is rolled back.
    let done = group
        .iter()
        .map(|request| request.write(&transaction, tables))
        .collect::<Result<_, _>>()?;
    let committed = transaction.commit();
    match &committed {
        Ok(()) => depths.add(std::mem::take(&mut tables.added)),
        Err(_) => depths.doubt(),
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
    use crate::id::{JobIndex, WorkflowId};
    use crate::store::sqlite::{file, read};
    use crate::time::Timestamp;

    fn create(number: u64, state: &[u8]) -> Change {
        let id = WorkflowId::new(Timestamp::from_micros(number * 1_000), Partition(0), 0);
        let meta = vec![1];
        let jobs = vec![(JobIndex(0), state.to_vec())];
        let put = Put {
            meta,
            jobs,
            birth: Some(CreationRecord::default()),
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
                Request::Apply {
                    partition: Partition(0),
                    changes: [change.clone()].into(),
                    answer,
                },
                answered,
            )
        };
        let (group, answered): (Vec<_>, Vec<_>) = changes.iter().map(request).unzip();
        commit(
            &mut Written::new(connection, presence, &Depths::default()),
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
        let note = Note::of_lines(change.workflow, vec![7; 100_000]);
        let (answer, mut noted) = oneshot::channel();
        let (applies, mut applied) = oneshot::channel();
        let group = vec![
            Request::Notes {
                notes: vec![note],
                answer,
            },
            Request::Apply {
                partition: Partition(0),
                changes: [later].into(),
                answer: applies,
            },
        ];
        commit(
            &mut Written::new(&opened.writer, &opened.presence, &Depths::default()),
            group,
        );
        assert!(matches!(
            noted.try_recv().unwrap(),
            Err(StoreError::Unavailable { .. })
        ));
        assert_eq!(applied.try_recv().unwrap(), Ok(vec![Applied::Done]));
    }
}
