//! Reads. Each sees the store at one moment.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Params, Row as SqlRow, params};

use super::column::{field_number, micros, timestamp};
use crate::codec::rows;
use crate::codec::{ResultField, Row, StoreError, Stored, StoredState, due_row, read_due_row};
use crate::model::{JobIndex, Partition, Timestamp, WorkflowId};
use crate::store::{EncodedSummary, Order, RowRange, RowSet, TimeIndex};

/// Runs `read` in a transaction, so that it sees the store at one moment.
pub(super) fn in_transaction<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // The transaction is dropped without a commit, as there is nothing to commit.
    let transaction = connection.unchecked_transaction()?;
    read(&transaction)
}

pub(super) fn one<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    decode: impl FnOnce(&SqlRow<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    Ok(connection
        .prepare_cached(sql)?
        .query_row(params, decode)
        .optional()?)
}

pub(super) fn many<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    decode: impl FnMut(&SqlRow<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement
        .query_map(params, decode)?
        .collect::<rusqlite::Result<_>>();
    Ok(found?)
}

/// A limit for SQLite, whose integers have a sign.
pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A number; 0 if no row is found.
fn number(connection: &Connection, sql: &str, params: impl Params) -> Result<u64, StoreError> {
    let number = one(connection, sql, params, |row| row.get(0))?;
    Ok(number.map_or(0, i64::cast_unsigned))
}

fn id_at(found: &SqlRow<'_>, column: usize) -> rusqlite::Result<WorkflowId> {
    found.get(column).map(WorkflowId::from_bytes)
}

fn meta(connection: &Connection, id: WorkflowId) -> Result<Option<Vec<u8>>, StoreError> {
    let sql = "SELECT meta FROM workflow WHERE id = ?1";
    one(connection, sql, [id.bytes().as_slice()], |row| row.get(0))
}

pub(super) fn state(
    connection: &Connection,
    id: WorkflowId,
) -> Result<Option<StoredState>, StoreError> {
    let Some(meta) = meta(connection, id)? else {
        return Ok(None);
    };
    let jobs = many(
        connection,
        "SELECT job, state FROM job WHERE id = ?1",
        [id.bytes().as_slice()],
        |row| Ok((JobIndex(row.get(0)?), row.get(1)?)),
    )?;
    Ok(Some(StoredState {
        meta,
        jobs,
        ..StoredState::default()
    }))
}

pub(super) fn excerpt(
    connection: &Connection,
    (id, jobs): &(WorkflowId, Vec<JobIndex>),
) -> Result<Option<StoredState>, StoreError> {
    let Some(meta) = meta(connection, *id)? else {
        return Ok(None);
    };
    let mut state = StoredState {
        meta,
        jobs: Vec::with_capacity(jobs.len()),
        ..StoredState::default()
    };
    for &job in jobs {
        let found = one(
            connection,
            "SELECT state FROM job WHERE id = ?1 AND job = ?2",
            params![id.bytes().as_slice(), job.0],
            |row| row.get(0),
        );
        state.jobs.extend(found?.map(|found| (job, found)));
    }
    Ok(Some(state))
}

pub(super) fn graph(
    connection: &Connection,
    id: WorkflowId,
) -> Result<Option<Vec<u8>>, StoreError> {
    one(
        connection,
        "SELECT graph FROM graph WHERE id = ?1",
        [id.bytes().as_slice()],
        |row| row.get(0),
    )
}

pub(super) fn load(connection: &Connection, id: &WorkflowId) -> Result<Option<Stored>, StoreError> {
    let Some(state) = state(connection, *id)? else {
        return Ok(None);
    };
    let missing = || StoreError::corrupt(format!("workflow {id}"), "it has no graph");
    let graph = graph(connection, *id)?.ok_or_else(missing)?;
    Ok(Some(Stored { graph, state }))
}

pub(super) fn size(connection: &Connection, id: &WorkflowId) -> Result<u64, StoreError> {
    let sql = "SELECT length(graph) FROM graph WHERE id = ?1";
    number(connection, sql, [id.bytes().as_slice()])
}

pub(super) fn summary(
    connection: &Connection,
    id: &WorkflowId,
) -> Result<Option<EncodedSummary>, StoreError> {
    let head = |row: &SqlRow<'_>| {
        Ok(EncodedSummary {
            meta: row.get(0)?,
            label: row.get(1)?,
        })
    };
    one(
        connection,
        "SELECT meta, label FROM workflow WHERE id = ?1",
        [id.bytes().as_slice()],
        head,
    )
}

pub(super) fn results(
    connection: &Connection,
    (id, fields): &(WorkflowId, Vec<ResultField>),
) -> Result<Vec<Option<Bytes>>, StoreError> {
    let sql = "SELECT value FROM result WHERE id = ?1 AND field = ?2";
    let result = |&field: &ResultField| {
        let value = |row: &SqlRow<'_>| row.get::<_, Vec<u8>>(0).map(Bytes::from);
        one(
            connection,
            sql,
            params![id.bytes().as_slice(), field_number(field)],
            value,
        )
    };
    fields.iter().map(result).collect()
}

/// The first row after all rows that begin with `prefix`. No row begins with byte 255: names are
/// UTF-8, sections are letters, and no meta of a small workflow does.
pub(super) fn end_of(prefix: &[u8]) -> Row {
    let kept = prefix.iter().rposition(|&byte| byte < u8::MAX);
    kept.map_or_else(
        || vec![u8::MAX],
        |last| [&prefix[..last], &[prefix[last] + 1]].concat(),
    )
}

pub(super) fn ready(
    connection: &Connection,
    partition: Partition,
    prefix: &[u8],
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    ready_from(connection, partition, prefix, &end_of(prefix), limit)
}

/// Ready rows of a range; `to` is exclusive.
pub(super) fn ready_from(
    connection: &Connection,
    partition: Partition,
    from: &[u8],
    to: &[u8],
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    let sql = "SELECT entry FROM ready_row WHERE partition = ?1 AND entry >= ?2 AND entry < ?3 ORDER BY entry LIMIT ?4";
    many(
        connection,
        sql,
        params![partition.0, from, to, sql_limit(limit)],
        |row| row.get(0),
    )
}

/// Number of ready rows that begin with a prefix.
pub(super) fn ready_count(
    connection: &Connection,
    partition: Partition,
    prefix: &[u8],
) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM ready_row WHERE partition = ?1 AND entry >= ?2 AND entry < ?3";
    number(
        connection,
        sql,
        params![partition.0, prefix, end_of(prefix)],
    )
}

fn time_table(which: TimeIndex) -> &'static str {
    match which {
        TimeIndex::Timers => "timer",
        TimeIndex::Expiries => "expiry",
    }
}

pub(super) fn due(
    connection: &Connection,
    partition: Partition,
    which: TimeIndex,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<(WorkflowId, Timestamp)>, StoreError> {
    let table = time_table(which);
    let sql = format!(
        "SELECT id, at FROM {table} WHERE partition = ?1 AND at <= ?2 ORDER BY at, id LIMIT ?3"
    );
    let entry = |row: &SqlRow<'_>| Ok((id_at(row, 0)?, timestamp(row.get(1)?)));
    many(
        connection,
        &sql,
        params![partition.0, micros(until), sql_limit(limit)],
        entry,
    )
}

pub(super) fn page(
    connection: &Connection,
    partition: Partition,
    range: &RowRange,
    order: Order,
    limit: usize,
) -> Result<Vec<WorkflowId>, StoreError> {
    let direction = match order {
        Order::NewestFirst => "DESC",
        Order::OldestFirst => "ASC",
    };
    let sql = format!(
        "SELECT entry FROM index_row WHERE partition = ?1 AND entry >= ?2 AND entry < ?3 ORDER BY entry {direction} LIMIT ?4"
    );
    let bounds = params![partition.0, range.start(), range.end(), sql_limit(limit)];
    let ids = many(connection, &sql, bounds, |row| {
        Ok(rows::workflow_in_row(row.get_ref(0)?.as_blob()?))
    })?;
    let unread = || StoreError::corrupt("an index row", "it ends in no id");
    ids.into_iter().map(|id| id.ok_or_else(unread)).collect()
}

pub(super) fn count(
    connection: &Connection,
    partition: Partition,
    range: &RowRange,
) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM index_row WHERE partition = ?1 AND entry >= ?2 AND entry < ?3";
    number(
        connection,
        sql,
        params![partition.0, range.start(), range.end()],
    )
}

pub(super) fn workflow_by_key(
    connection: &Connection,
    partition: Partition,
    key: &str,
) -> Result<Option<WorkflowId>, StoreError> {
    let sql = "SELECT id FROM idempotency WHERE partition = ?1 AND key = ?2";
    one(connection, sql, params![partition.0, key], |row| {
        id_at(row, 0)
    })
}

pub(super) fn rows(
    connection: &Connection,
    partition: Partition,
    set: RowSet,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    let table = match set {
        RowSet::Ready => "ready_row",
        RowSet::Index => "index_row",
        RowSet::Due(which) => return due_rows(connection, partition, which, after, limit),
    };
    let sql = format!(
        "SELECT entry FROM {table} WHERE partition = ?1 AND entry > ?2 ORDER BY entry LIMIT ?3"
    );
    // No row is empty, so all are after an empty one.
    many(
        connection,
        &sql,
        params![partition.0, after.unwrap_or_default(), sql_limit(limit)],
        |row| row.get(0),
    )
}

/// The workflows of a partition, which their ids name.
pub(super) fn states(
    connection: &Connection,
    partition: Partition,
) -> Result<Vec<WorkflowId>, StoreError> {
    let id = |row: &SqlRow<'_>| Ok(rows::workflow_in_row(row.get_ref(0)?.as_blob()?));
    let ids = many(connection, "SELECT id FROM workflow", [], id)?;
    Ok(ids
        .into_iter()
        .flatten()
        .filter(|id| id.partition() == partition)
        .collect())
}

fn due_rows(
    connection: &Connection,
    partition: Partition,
    which: TimeIndex,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    let table = time_table(which);
    let sql = format!(
        "SELECT at, id FROM {table} WHERE partition = ?1 AND (at, id) > (?2, ?3) ORDER BY at, id LIMIT ?4"
    );
    // The position before every row: no time is negative.
    let (at, id) = match after.and_then(read_due_row) {
        Some((at, id)) => (micros(at), id.bytes().to_vec()),
        None => (-1, Vec::new()),
    };
    let row = |row: &SqlRow<'_>| Ok(due_row(timestamp(row.get(0)?), id_at(row, 1)?));
    many(
        connection,
        &sql,
        params![partition.0, at, id, sql_limit(limit)],
        row,
    )
}
