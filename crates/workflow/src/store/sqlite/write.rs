//! Writes. All writes that wait share one transaction, and so one sync of the disk.

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::column::{field_number, micros};
use super::depths::{Added, Depths};
use super::presence::Presence;
use super::probe::{Probed, probe};
use super::worker::Jobs;
use super::{read, register};
use crate::id::{Partition, WorkflowId};
use crate::record::change::{Applied, Birth, Change, Delete, Moved, Put, RowChange, Write};
use crate::record::format::Format;
use crate::record::rows::Row;
use crate::store::error::StoreError;
use crate::store::query::Register;

/// The number of changes at which a transaction takes no more requests: about 50 ms of work. The first request of a group does not wait
/// long for the last one, and one sync for all of them costs little.
const GROUP: usize = 1_024;

/// What the thread that writes is asked to do.
pub(super) enum Request {
    Apply {
        partition: Partition,
        changes: Vec<Change>,
        answer: Answer<Vec<Applied>>,
    },
    Register {
        register: Register,
        change: register::Change,
        answer: Answer<u64>,
    },
    /// The most pages that the file may have.
    Bound {
        pages: u32,
        answer: Answer<()>,
    },
    /// Begins a migration from a format, or ends it.
    Migrate {
        from: Option<Format>,
        answer: Answer<()>,
    },
    Probe {
        answer: Answer<Probed>,
    },
    /// How many ready rows there are must be known.
    Count {
        answer: Answer<()>,
    },
}

/// What is written to.
pub(super) struct Written<'a> {
    pub(super) connection: &'a Connection,
    pub(super) presence: &'a Presence,
    pub(super) depths: &'a Depths,
}

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// The outcome of a request before its transaction is committed.
enum Done {
    Applied(Vec<Applied>),
    /// So many entries were removed.
    Registered(u64),
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
            Self::Probe { .. } | Self::Count { .. } => 0,
        }
    }

    /// Whether it only removes workflows.
    fn frees(&self) -> bool {
        let frees = |changes: &[Change]| changes.iter().all(|change| matches!(change.write, Write::Delete(_)));
        matches!(self, Self::Apply { changes, .. } if frees(changes))
    }

    /// Whether it writes nothing.
    fn asks(&self) -> bool {
        matches!(self, Self::Probe { .. } | Self::Count { .. })
    }

    fn write(&self, connection: &Connection, added: &mut Added) -> Result<Done, StoreError> {
        match self {
            Self::Apply { partition, changes, .. } => {
                let applied = changes.iter().map(|change| apply((connection, added), *partition, change));
                Ok(Done::Applied(applied.collect::<Result<_, _>>()?))
            }
            Self::Register { register, change, .. } => Ok(Done::Registered(change.write(connection, *register)?)),
            Self::Bound { pages, .. } => {
                // SQLite answers with what is the bound now, which is at least the size of the file.
                connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
                Ok(Done::Entered)
            }
            Self::Migrate { from, .. } => {
                migrate(connection, *from)?;
                Ok(Done::Entered)
            }
            Self::Probe { .. } | Self::Count { .. } => Ok(Done::Asked),
        }
    }

    /// Answers. Nothing happens when the caller has left.
    fn answer(self, done: Result<Done, StoreError>) {
        match (self, done) {
            (Self::Apply { answer, .. }, Ok(Done::Applied(applied))) => drop(answer.send(Ok(applied))),
            (Self::Apply { answer, .. }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Probe { answer }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Register { answer, .. }, Ok(Done::Registered(removed))) => drop(answer.send(Ok(removed))),
            (Self::Register { answer, .. }, Err(error)) => drop(answer.send(Err(error))),
            (Self::Apply { .. } | Self::Probe { .. } | Self::Register { .. }, Ok(_)) => {
                unreachable!("a request is done as what it is")
            }
            (Self::Bound { answer, .. } | Self::Migrate { answer, .. } | Self::Count { answer }, done) => {
                drop(answer.send(done.map(drop)));
            }
        }
    }
}

/// Notes that a migration has begun, or that it has ended.
fn migrate(connection: &Connection, from: Option<Format>) -> Result<(), StoreError> {
    match from {
        Some(from) => {
            // A migration that goes on comes from where it began.
            let note = "INSERT OR IGNORE INTO store VALUES ('migrates_from', ?1)";
            connection.execute(note, [from.schema()])?;
            connection.pragma_update(None, "user_version", Format::LATEST.schema())?;
        }
        None => drop(connection.execute("DELETE FROM store WHERE name = 'migrates_from'", [])?),
    }
    Ok(())
}

/// Works until there is no more to do.
pub(super) fn run(written: &Written<'_>, jobs: &mut Jobs<Request>) {
    while let Some(first) = jobs.next() {
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
            commit(written, group);
        }
        answer_questions(written, questions);
    }
}

/// Asks once for all that want to know.
fn answer_questions(written: &Written<'_>, questions: Vec<Request>) {
    let mut probed: Option<Probed> = None;
    for question in questions {
        match question {
            Request::Probe { answer } => {
                let probed = probed.get_or_insert_with(|| probe(written.connection, written.presence));
                let _left = answer.send(Ok(probed.clone()));
            }
            question => {
                let counted = written.depths.count(written.connection);
                question.answer(counted.map(|()| Done::Entered));
            }
        }
    }
}

/// Writes a group in one transaction and then answers. When there is no room for all of it, what only removes is written without the rest.
fn commit(written: &Written<'_>, group: Vec<Request>) {
    match write(written, &group) {
        Ok(done) => group.into_iter().zip(done).for_each(|(request, done)| request.answer(Ok(done))),
        Err(error) => {
            let (freeing, others): (Vec<_>, Vec<_>) = group.into_iter().partition(Request::frees);
            let alone = !others.is_empty() && !freeing.is_empty() && matches!(error, StoreError::Unavailable { .. });
            others.into_iter().for_each(|request| request.answer(Err(error.clone())));
            match alone {
                true => commit(written, freeing),
                false => freeing.into_iter().for_each(|request| request.answer(Err(error.clone()))),
            }
        }
    }
}

/// Writes all of a group or, with an error other than [`StoreError::Unknown`], nothing.
fn write(written: &Written<'_>, group: &[Request]) -> Result<Vec<Done>, StoreError> {
    let Written { connection, presence, depths } = written;
    presence.check()?;
    let mut added = Added::default();
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    // An error leaves here, and the transaction takes back what was written.
    let done = group.iter().map(|request| request.write(&transaction, &mut added)).collect::<Result<_, _>>()?;
    let committed = transaction.commit();
    match &committed {
        Ok(()) => depths.add(added),
        Err(_) => depths.doubt(),
    }
    match committed {
        // What was just written is acknowledged only if it is in a file that somebody will find.
        Ok(()) => match presence.check() {
            Ok(()) => Ok(done),
            Err(gone) => Err(StoreError::Unknown { reason: gone.to_string() }),
        },
        Err(error) => Err(match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) => error.into(),
            // What could not be synced is taken back, yet may be on the disk: it counts again if the machine fails before the next
            // commit.
            _ => StoreError::Unknown { reason: format!("sqlite: committing: {error}") },
        }),
    }
}

/// The rows for the timer and the expiry of a workflow.
#[derive(Clone, Copy, Default)]
struct Moments {
    timer: Option<i64>,
    expiry: Option<i64>,
}

/// A transaction, and what it adds to the numbers of ready rows.
type Target<'a> = (&'a Connection, &'a mut Added);

fn apply((connection, added): Target<'_>, partition: Partition, change: &Change) -> Result<Applied, StoreError> {
    let at = (partition, change.workflow);
    if let (Write::Put(put), Some(expected)) = (&change.write, &change.expected)
        && put.birth.is_none()
        && put.timer == Moved::Unchanged
        && put.expiry == Moved::Unchanged
    {
        return match replace_meta(connection, change, (expected, &put.meta))? {
            true => put_rest((connection, added), at, put),
            false => Ok(Applied::Conflict(read::state(connection, change.workflow)?)),
        };
    }
    let mut state = connection.prepare_cached("SELECT meta, timer, expiry FROM workflow WHERE id = ?1")?;
    let stored = state.query_row([change.workflow.bytes().as_slice()], |row| {
        let expected = change.expects(Some(row.get_ref(0)?.as_blob()?));
        Ok((expected, Moments { timer: row.get(1)?, expiry: row.get(2)? }))
    });
    let moments = match (stored.optional()?, &change.expected) {
        (Some((true, moments)), _) => Some(moments),
        (None, None) => None,
        (None, Some(_)) => return Ok(Applied::Conflict(None)),
        (Some((false, _)), _) => return Ok(Applied::Conflict(read::state(connection, change.workflow)?)),
    };
    match &change.write {
        Write::Put(change) => put((connection, added), at, moments.unwrap_or_default(), change),
        Write::Delete(change) => delete((connection, added), at, moments, change),
    }
}

/// Replaces a meta without a look at the times beside it, if it is the expected one. Returns whether it was.
fn replace_meta(
    connection: &Connection,
    change: &Change,
    (expected, meta): (&[u8], &[u8]),
) -> Result<bool, StoreError> {
    let id = change.workflow.bytes().as_slice();
    let replaced = match change.small {
        true => {
            let update = "UPDATE workflow SET meta = ?2 WHERE id = ?1 AND substr(meta, 1, ?3) = ?4";
            connection.prepare_cached(update)?.execute(params![id, meta, expected.len() as i64, expected])?
        }
        false => {
            let update = "UPDATE workflow SET meta = ?2 WHERE id = ?1 AND meta = ?3";
            connection.prepare_cached(update)?.execute(params![id, meta, expected])?
        }
    };
    Ok(replaced > 0)
}

type At = (Partition, WorkflowId);

fn put((connection, added): Target<'_>, at: At, moments: Moments, put: &Put) -> Result<Applied, StoreError> {
    if let Some(key) = put.birth.as_ref().and_then(|birth| birth.idempotency_key.as_deref())
        && let Some(owner) = claim_key(connection, at, key)?
    {
        return Ok(Applied::KeyTaken(owner));
    }
    let timer = moved(connection, at, (moments.timer, put.timer), &TIMER)?;
    let expiry = moved(connection, at, (moments.expiry, put.expiry), &EXPIRY)?;
    put_workflow(connection, at.1, put, Moments { timer, expiry })?;
    put_rest((connection, added), at, put)
}

/// Writes what is not beside the meta.
fn put_rest((connection, added): Target<'_>, (partition, id): At, put: &Put) -> Result<Applied, StoreError> {
    put_jobs(connection, id, put)?;
    put_results(connection, id, put)?;
    change_rows(connection, partition, &put.ready, (&READY, &mut |row, rows| added.note(partition, row, rows)))?;
    change_rows(connection, partition, &put.index, (&INDEX, &mut |_, _| {}))?;
    Ok(Applied::Done)
}

/// Enters an idempotency key, or says which workflow has it.
fn claim_key(connection: &Connection, (partition, id): At, key: &str) -> Result<Option<WorkflowId>, StoreError> {
    let owner = read::keyed(connection, partition, key)?;
    if owner.is_none() {
        let mut insert = connection.prepare_cached("INSERT INTO idempotency VALUES (?1, ?2, ?3)")?;
        insert.execute(params![partition.0, key, id.bytes().as_slice()])?;
    }
    Ok(owner)
}

fn put_workflow(connection: &Connection, id: WorkflowId, put: &Put, moments: Moments) -> Result<(), StoreError> {
    let (id, Moments { timer, expiry }) = (id.bytes().as_slice(), moments);
    match &put.birth {
        Some(Birth { graph, label, .. }) => {
            let insert = "INSERT OR REPLACE INTO workflow VALUES (?1, ?2, ?3, ?4, ?5)";
            connection.prepare_cached(insert)?.execute(params![id, put.meta, label, timer, expiry])?;
            let insert = "INSERT OR REPLACE INTO graph VALUES (?1, ?2)";
            connection.prepare_cached(insert)?.execute(params![id, graph])?;
        }
        None => {
            let update = "UPDATE workflow SET meta = ?2, timer = ?3, expiry = ?4 WHERE id = ?1";
            connection.prepare_cached(update)?.execute(params![id, put.meta, timer, expiry])?;
        }
    }
    Ok(())
}

fn put_jobs(connection: &Connection, id: WorkflowId, put: &Put) -> Result<(), StoreError> {
    if put.jobs.is_empty() {
        return Ok(());
    }
    let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO job VALUES (?1, ?2, ?3)")?;
    for (job, state) in &put.jobs {
        insert.execute(params![id.bytes().as_slice(), job.0, state])?;
    }
    Ok(())
}

fn put_results(connection: &Connection, id: WorkflowId, put: &Put) -> Result<(), StoreError> {
    let id = id.bytes().as_slice();
    if !put.results.is_empty() {
        let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO result VALUES (?1, ?2, ?3)")?;
        for (field, value) in &put.results {
            insert.execute(params![id, field_number(*field), value])?;
        }
    }
    if put.dropped_results.is_empty() {
        return Ok(());
    }
    let mut remove = connection.prepare_cached("DELETE FROM result WHERE id = ?1 AND field = ?2")?;
    for &field in &put.dropped_results {
        remove.execute(params![id, field_number(field)])?;
    }
    Ok(())
}

fn delete(
    (connection, added): Target<'_>,
    at: At,
    moments: Option<Moments>,
    delete: &Delete,
) -> Result<Applied, StoreError> {
    let (partition, id) = at;
    match moments {
        Some(Moments { timer, expiry }) => {
            for (old, set) in [(timer, &TIMER), (expiry, &EXPIRY)] {
                old.map_or(Ok(None), |old| moved(connection, at, (Some(old), Moved::Away), set))?;
            }
        }
        // What is left of a workflow that is gone does not say when it was due.
        None => {
            for set in [&TIMER, &EXPIRY] {
                moved(connection, at, (None, Moved::Away), set)?;
            }
        }
    }
    for table in [
        "DELETE FROM workflow WHERE id = ?1",
        "DELETE FROM graph WHERE id = ?1",
        "DELETE FROM job WHERE id = ?1",
        "DELETE FROM result WHERE id = ?1",
    ] {
        connection.prepare_cached(table)?.execute([id.bytes().as_slice()])?;
    }
    remove_rows(
        connection,
        partition,
        delete.ready.iter(),
        (&READY, &mut |row, rows| added.note(partition, row, rows)),
    )?;
    remove_rows(connection, partition, delete.index.iter(), (&INDEX, &mut |_, _| {}))?;
    if let Some(key) = &delete.idempotency_key {
        let mut remove = connection.prepare_cached("DELETE FROM idempotency WHERE partition = ?1 AND key = ?2")?;
        remove.execute(params![partition.0, key])?;
    }
    Ok(Applied::Done)
}

/// How to change a set of rows.
struct Statements {
    insert: &'static str,
    update: &'static str,
    delete: &'static str,
}

/// How to change a set ordered by time.
struct Timed {
    rows: Statements,
    /// Removes those of one workflow, whenever they are due.
    delete_all: &'static str,
}

const TIMER: Timed = Timed {
    rows: Statements {
        insert: "INSERT OR IGNORE INTO timer VALUES (?1, ?2, ?3)",
        update: "UPDATE OR REPLACE timer SET at = ?4 WHERE partition = ?1 AND at = ?2 AND id = ?3",
        delete: "DELETE FROM timer WHERE partition = ?1 AND at = ?2 AND id = ?3",
    },
    delete_all: "DELETE FROM timer WHERE partition = ?1 AND id = ?2",
};
const EXPIRY: Timed = Timed {
    rows: Statements {
        insert: "INSERT OR IGNORE INTO expiry VALUES (?1, ?2, ?3)",
        update: "UPDATE OR REPLACE expiry SET at = ?4 WHERE partition = ?1 AND at = ?2 AND id = ?3",
        delete: "DELETE FROM expiry WHERE partition = ?1 AND at = ?2 AND id = ?3",
    },
    delete_all: "DELETE FROM expiry WHERE partition = ?1 AND id = ?2",
};
const READY: Statements = Statements {
    insert: "INSERT OR IGNORE INTO ready_row VALUES (?1, ?2)",
    update: "UPDATE OR IGNORE ready_row SET entry = ?3 WHERE partition = ?1 AND entry = ?2",
    delete: "DELETE FROM ready_row WHERE partition = ?1 AND entry = ?2",
};
const INDEX: Statements = Statements {
    insert: "INSERT OR IGNORE INTO index_row VALUES (?1, ?2)",
    update: "UPDATE OR REPLACE index_row SET entry = ?3 WHERE partition = ?1 AND entry = ?2",
    delete: "DELETE FROM index_row WHERE partition = ?1 AND entry = ?2",
};

/// Moves the row of a workflow, and says where it is then.
fn moved(
    connection: &Connection,
    (partition, id): At,
    (old, to): (Option<i64>, Moved),
    set: &Timed,
) -> Result<Option<i64>, StoreError> {
    let new = match to {
        Moved::Unchanged => return Ok(old),
        Moved::To(at) => Some(micros(at)),
        Moved::Away => None,
    };
    let id = id.bytes().as_slice();
    let moved = match (old, new) {
        (old, new) if old == new => {
            // Rows are written again because they may not be those that the state calls for.
            connection.prepare_cached(set.delete_all)?.execute(params![partition.0, id]).map(|_| false)?
        }
        (Some(old), Some(new)) => {
            connection.prepare_cached(set.rows.update)?.execute(params![partition.0, old, id, new])? > 0
        }
        (Some(old), None) => {
            connection.prepare_cached(set.rows.delete)?.execute(params![partition.0, old, id]).map(|_| true)?
        }
        (None, _) => false,
    };
    if let (Some(new), false) = (new, moved) {
        connection.prepare_cached(set.rows.insert)?.execute(params![partition.0, new, id])?;
    }
    Ok(new)
}

/// How to change a set of rows, and who hears of each row that was added (1) or removed (-1).
type RowsOf<'a> = (&'a Statements, &'a mut dyn FnMut(&Row, i64));

fn change_rows(
    connection: &Connection,
    at: Partition,
    change: &RowChange,
    (set, hears): RowsOf<'_>,
) -> Result<(), StoreError> {
    // One statement that moves a row costs less than two.
    let moved = change.remove.len().min(change.add.len());
    let mut unmoved = Vec::new();
    if moved > 0 {
        let mut update = connection.prepare_cached(set.update)?;
        for (old, new) in change.remove.iter().zip(&change.add) {
            if update.execute(params![at.0, old, new])? == 0 {
                unmoved.push((old, new));
            } else {
                hears(old, -1);
                hears(new, 1);
            }
        }
    }
    // The row to remove is not there, or the row to add is.
    let (absent, present): (Vec<&Row>, Vec<&Row>) = unmoved.into_iter().unzip();
    remove_rows(connection, at, change.remove[moved..].iter().chain(absent), (set, hears))?;
    let added = change.add[moved..].iter().chain(present);
    for row in added {
        hears(row, connection.prepare_cached(set.insert)?.execute(params![at.0, row])? as i64);
    }
    Ok(())
}

fn remove_rows<'r>(
    connection: &Connection,
    at: Partition,
    rows: impl Iterator<Item = &'r Row>,
    (set, hears): RowsOf<'_>,
) -> Result<(), StoreError> {
    for row in rows {
        hears(row, -(connection.prepare_cached(set.delete)?.execute(params![at.0, row])? as i64));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobIndex;
    use crate::store::sqlite::file;
    use crate::time::Timestamp;

    fn create(number: u64, state: &[u8]) -> Change {
        let id = WorkflowId::new(Timestamp::from_micros(number * 1_000), Partition(0), 0);
        let (meta, jobs) = (vec![1], vec![(JobIndex(0), state.to_vec())]);
        let put = Put { meta, jobs, birth: Some(Birth::default()), ..Put::default() };
        Change { workflow: id, expected: None, small: false, write: Write::Put(Box::new(put)) }
    }

    /// Commits a group of one request a change, and gives their answers.
    fn answers(
        (connection, presence): (&Connection, &Presence),
        changes: &[Change],
    ) -> Vec<Result<Vec<Applied>, StoreError>> {
        let request = |change: &Change| {
            let (answer, answered) = oneshot::channel();
            (Request::Apply { partition: Partition(0), changes: vec![change.clone()], answer }, answered)
        };
        let (group, answered): (Vec<_>, Vec<_>) = changes.iter().map(request).unzip();
        commit(&Written { connection, presence, depths: &Depths::default() }, group);
        answered.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect()
    }

    #[test]
    fn a_group_that_does_not_fit_on_the_disk_is_refused_whole_and_fits_later() {
        let directory = tempfile::tempdir().unwrap();
        let opened = file::open(&directory.path().join("store.sqlite"), 1).unwrap();
        let pages: i64 = opened.writer.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let bound =
            |pages: i64| opened.writer.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        bound(pages + 2);
        let group = [create(1, b"small"), create(2, &[7; 100_000]), create(3, b"small")];
        for answer in answers((&opened.writer, &opened.presence), &group) {
            let Err(StoreError::Unavailable { reason }) = answer else { panic!("{answer:?}") };
            assert!(reason.contains("full"), "{reason}");
        }
        for change in &group {
            assert_eq!(read::load(&opened.readers[0], change.workflow), Ok(None));
        }
        bound(pages + 1_000);
        assert!(
            answers((&opened.writer, &opened.presence), &group).iter().all(|answer| *answer == Ok(vec![Applied::Done]))
        );
        assert!(group.iter().all(|change| read::load(&opened.readers[0], change.workflow).unwrap().is_some()));
    }
}
