//! Converts replies of Redis into results of the store.

use std::str::FromStr;

use bytes::Bytes;
use tidegate_pipeline::{Outcome, Reply, ServerError};

use crate::codec::{NewerState, Stamp, StoreError, StoredState, compact_state, rows};
use crate::model::{JobIndex, Timestamp, WorkflowId};
use crate::store::EncodedSummary;
use crate::store::redis::keys::{self, META};

/// An error for a reply of an unexpected type.
pub(crate) fn unexpected(expected: &str, reply: &Reply) -> StoreError {
    let found: String = format!("{reply:?}").chars().take(200).collect();
    StoreError::corrupt(
        format!("an answer of redis, {expected},"),
        format!("it is {found}"),
    )
}

/// The error for a missing reply when nothing was written.
pub(crate) fn unavailable(outcome: &Outcome) -> StoreError {
    StoreError::unavailable(reason(outcome))
}

pub(crate) fn reason(outcome: &Outcome) -> String {
    let reason = outcome
        .reply()
        .err()
        .map_or_else(|| "redis answered".to_owned(), |error| error.to_string());
    // Redis 7 adds the digest of the script and a line number.
    reason
        .split(" script: ")
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// The reply to a read.
pub(crate) fn answer(outcome: &Outcome) -> Result<&Reply, StoreError> {
    outcome.reply().map_err(|_| unavailable(outcome))
}

/// The elements of an array.
pub(crate) fn array(reply: &Reply) -> Result<Vec<&Reply>, StoreError> {
    let Reply::Array(elements) = reply else {
        return Err(unexpected("a list", reply));
    };
    elements
        .iter()
        .map(|element| element.as_ref().map_err(|_| unexpected("a list", reply)))
        .collect()
}

/// A string; `None` for a null.
pub(crate) fn bytes(reply: &Reply) -> Result<Option<&Bytes>, StoreError> {
    match reply {
        Reply::Bulk(bytes) | Reply::Simple(bytes) => Ok(Some(bytes)),
        Reply::Null => Ok(None),
        _ => Err(unexpected("a string", reply)),
    }
}

/// The values of an HMGET reply.
pub(crate) fn values(reply: &Reply) -> Result<Vec<Option<&Bytes>>, StoreError> {
    array(reply)?.into_iter().map(bytes).collect()
}

/// A text; `None` for a null.
pub(crate) fn text(reply: &Reply) -> Result<Option<String>, StoreError> {
    Ok(bytes(reply)?.map(|text| String::from_utf8_lossy(text).into_owned()))
}

/// A number that is written as text.
pub(crate) fn parse<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn string(reply: &Reply) -> Result<&Bytes, StoreError> {
    bytes(reply)?.ok_or_else(|| unexpected("a string", reply))
}

/// A count.
pub(crate) fn count(reply: &Reply) -> Result<u64, StoreError> {
    match reply {
        Reply::Integer(count) => u64::try_from(*count).map_err(|_| unexpected("a count", reply)),
        _ => Err(unexpected("a count", reply)),
    }
}

/// A time in seconds and microseconds.
pub(crate) fn time(reply: &Reply) -> Result<Timestamp, StoreError> {
    let number =
        |part: &Reply| parse::<u64>(string(part)?).ok_or_else(|| unexpected("a time", reply));
    match array(reply)?.as_slice() {
        [seconds, micros] => Ok(Timestamp::from_micros(
            number(seconds)? * 1_000_000 + number(micros)?,
        )),
        _ => Err(unexpected("a time", reply)),
    }
}

/// A list of strings.
pub(crate) fn strings(reply: &Reply) -> Result<Vec<Vec<u8>>, StoreError> {
    array(reply)?
        .into_iter()
        .map(|element| Ok(string(element)?.to_vec()))
        .collect()
}

/// The cursor of a SCAN reply, and the ids at the end of its keys.
pub(super) fn scanned(reply: &Reply) -> Result<(u64, Vec<WorkflowId>), StoreError> {
    let [cursor, found] = array(reply)?[..] else {
        return Err(unexpected("a cursor and keys", reply));
    };
    let id = |key: &[u8]| {
        String::from_utf8_lossy(key)
            .rsplit(':')
            .next()?
            .parse()
            .ok()
    };
    Ok((
        cursor_of(cursor)?,
        strings(found)?.iter().filter_map(|key| id(key)).collect(),
    ))
}

/// The cursor of an HSCAN reply, 0 at the end, and fields with their values.
pub(super) type ScanPage = (u64, Vec<(Bytes, Bytes)>);

/// The content of an HSCAN reply.
pub(crate) fn scan_page(reply: &Reply) -> Result<ScanPage, StoreError> {
    let [cursor, fields] = array(reply)?[..] else {
        return Err(unexpected("a cursor and fields", reply));
    };
    let fields = pairs(fields)?
        .into_iter()
        .map(|(field, value)| (field.clone(), value.clone()));
    Ok((cursor_of(cursor)?, fields.collect()))
}

fn cursor_of(reply: &Reply) -> Result<u64, StoreError> {
    parse(string(reply)?).ok_or_else(|| unexpected("a cursor", reply))
}

/// The reply to a read of `what`, which is corrupt if it is of another type.
pub(crate) fn stored<'a>(outcome: &'a Outcome, what: &str) -> Result<&'a Reply, StoreError> {
    match outcome {
        Outcome::ServerError(error) if error.message.starts_with("WRONGTYPE") => {
            Err(StoreError::corrupt(what, error.message.to_string()))
        }
        other => answer(other),
    }
}

/// Whether Redis forbids a command.
pub(crate) fn is_forbidden(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::ServerError(error) if error.message.starts_with("NOPERM"))
}

/// Strings in pairs, as HGETALL and WITHSCORES return them: one after the other, or nested in
/// RESP3.
fn pairs(reply: &Reply) -> Result<Vec<(&Bytes, &Bytes)>, StoreError> {
    let mut elements = array(reply)?;
    if matches!(elements.first(), Some(Reply::Array(_))) {
        let nested: Vec<Vec<&Reply>> = elements.into_iter().map(array).collect::<Result<_, _>>()?;
        elements = nested.concat();
    }
    elements
        .chunks_exact(2)
        .map(|pair| Ok((string(pair[0])?, string(pair[1])?)))
        .collect()
}

/// Pairs of texts, sorted.
pub(crate) fn entries(reply: &Reply) -> Result<Vec<(String, String)>, StoreError> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let mut entries: Vec<_> = pairs(reply)?
        .into_iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect();
    entries.sort_unstable();
    Ok(entries)
}

/// All fields of the state at `key`. `None` if it does not exist.
pub(crate) fn state(key: &str, reply: &Reply) -> Result<Option<StoredState>, StoreError> {
    state_of(key, pairs(reply)?)
}

/// The state with the given fields and values. `None` if there are none.
pub(crate) fn state_of<'a>(
    key: &str,
    fields: impl IntoIterator<Item = (&'a Bytes, &'a Bytes)>,
) -> Result<Option<StoredState>, StoreError> {
    let mut fields = fields.into_iter().peekable();
    if fields.peek().is_none() {
        return Ok(None);
    }
    let mut state = StoredState::default();
    for (field, value) in fields {
        if field == META {
            state.meta = value.to_vec();
        } else if let Some(job) = keys::job_of(field) {
            state.jobs.push((job, value.to_vec()));
        } else {
            state
                .pending_row_writers
                .extend(keys::missing_rows_writer(field));
        }
    }
    if state.meta.is_empty() {
        Err(StoreError::corrupt(key, "it has no field m"))
    } else {
        Ok(Some(state))
    }
}

/// Version and writer of the latest write to the state at `key`, and the fields that were written
/// after the expected state.
pub(crate) fn newer_state(
    key: &str,
    reply: &[Result<Reply, ServerError>],
) -> Result<NewerState, StoreError> {
    let [
        Ok(Reply::Integer(version)),
        Ok(Reply::Integer(writer)),
        Ok(fields),
    ] = reply
    else {
        return Err(unexpected(
            "what was written to a state",
            &Reply::Array(reply.to_vec()),
        ));
    };
    let stamp = Stamp {
        version: *version as u64,
        writer: *writer as u32,
    };
    // The fields of jobs are numbers here.
    let mut state = StoredState::default();
    for pair in array(fields)?.chunks_exact(2) {
        let value = string(pair[1])?.to_vec();
        match pair[0] {
            Reply::Integer(job) => state.jobs.push((JobIndex(*job as u32), value)),
            _ => state.meta = value,
        }
    }
    if state.meta.is_empty() {
        return Err(StoreError::corrupt(key, "it has no field m"));
    }
    Ok(NewerState { stamp, state })
}

/// The state of a small workflow. `None` if it does not exist.
pub(crate) fn small(reply: &Reply) -> Result<Option<StoredState>, StoreError> {
    Ok(bytes(reply)?.map(|value| StoredState {
        meta: value.to_vec(),
        ..StoredState::default()
    }))
}

/// The state of a small workflow, as an array of at most one element.
pub(crate) fn small_in_array(reply: &Reply) -> Result<Option<StoredState>, StoreError> {
    array(reply)?.first().map_or(Ok(None), |value| small(value))
}

/// The meta and the existing records of the given jobs.
pub(super) fn excerpt(reply: &Reply, jobs: &[JobIndex]) -> Result<Option<StoredState>, StoreError> {
    let values = values(reply)?;
    let Some((Some(meta), values)) = values.split_first() else {
        return Ok(None);
    };
    let found = jobs
        .iter()
        .zip(values)
        .filter_map(|(job, value)| Some((*job, value.as_ref()?.to_vec())));
    Ok(Some(StoredState {
        meta: meta.to_vec(),
        jobs: found.collect(),
        ..StoredState::default()
    }))
}

/// The summary of a small workflow.
pub(super) fn small_summary(reply: &Reply) -> Result<Option<EncodedSummary>, StoreError> {
    let Some(value) = bytes(reply)? else {
        return Ok(None);
    };
    let label = compact_state::encoded_label(value)
        .ok_or_else(|| unexpected("the state of a small workflow", reply))?;
    Ok(Some(EncodedSummary {
        meta: value.to_vec(),
        label,
    }))
}

/// The summary of a workflow: meta and the chunks of the label.
pub(super) fn summary(reply: &Reply) -> Result<Option<EncodedSummary>, StoreError> {
    let values = values(reply)?;
    let Some((Some(meta), label)) = values.split_first() else {
        return Ok(None);
    };
    let label = label
        .iter()
        .flatten()
        .flat_map(|piece| piece.iter().copied())
        .collect();
    Ok(Some(EncodedSummary {
        meta: meta.to_vec(),
        label,
    }))
}

/// An id that was written as text.
pub(crate) fn id(text: &[u8]) -> Result<WorkflowId, StoreError> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|error| {
        StoreError::corrupt("the id behind an idempotency key", format!("{error}"))
    })
}

/// The workflows of index rows.
pub(super) fn ids(reply: &Reply) -> Result<Vec<WorkflowId>, StoreError> {
    let of = |row: &Reply| {
        rows::workflow_in_row(string(row)?).ok_or_else(|| unexpected("an index row", row))
    };
    array(reply)?.into_iter().map(of).collect()
}

/// Workflows with their times.
pub(super) fn moments(reply: &Reply) -> Result<Vec<(WorkflowId, Timestamp)>, StoreError> {
    let moment = |(member, score): (&Bytes, &Bytes)| {
        let id = member.as_ref().try_into().ok().map(WorkflowId::from_bytes);
        // Redis 7.2 and later may write large scores with an exponent.
        let score: f64 = parse(score)?;
        Some((id?, Timestamp::from_micros(score as u64)))
    };
    let read = |pair| moment(pair).ok_or_else(|| unexpected("workflows and their moments", reply));
    pairs(reply)?.into_iter().map(read).collect()
}
