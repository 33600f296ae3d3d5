//! States and graphs as bytes of the store.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::format::Format;
use crate::graph::Graph;
use crate::state::{AttemptError, Job, JobState, Label, Meta, Worker};
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// Most records are shorter, so that their bytes are allocated once. A small workflow of two jobs is a little longer than this.
const USUAL: usize = 160;

/// Why a record cannot be read.
#[derive(Debug, Error)]
pub(crate) enum Unreadable {
    #[error("it has format {0}, which a later version of tidegate writes")]
    Format(u32),
    #[error(transparent)]
    Bytes(#[from] postcard::Error),
}

/// What a store keeps. In the first format it may have fewer fields.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// The record in the first format.
    fn encode_first(&self) -> Vec<u8> {
        bytes(self)
    }

    /// Reads what [`Record::encode_first`] wrote.
    fn decode_first(bytes: &[u8]) -> Result<Self, postcard::Error> {
        postcard::from_bytes(bytes)
    }
}

impl Record for AttemptError {}
impl Record for Graph {}
impl Record for Label {}
impl Record for Meta {}

/// The fields of a job in the first format, in their order.
type FirstJob =
    ((JobState, u16, u16, u64, Option<Worker>), (Option<Timestamp>, Option<Timestamp>, Option<Timestamp>, u32));

impl Record for Job {
    fn encode_first(&self) -> Vec<u8> {
        let lease = (self.state, self.attempt, self.lost, self.token, &self.worker);
        bytes(&(lease, (self.ready_at, self.started_at, self.finished_at, self.output_bytes)))
    }

    fn decode_first(bytes: &[u8]) -> Result<Self, postcard::Error> {
        let (lease, moments): FirstJob = postcard::from_bytes(bytes)?;
        let (state, attempt, lost, token, worker) = lease;
        let (ready_at, started_at, finished_at, output_bytes) = moments;
        let job = Self { state, attempt, lost, token, worker, ready_at, ..Self::default() };
        Ok(Self { started_at, finished_at, output_bytes, ..job })
    }
}

fn bytes<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("memory is the only thing that encoding can lack")
}

/// The bytes that [`decode`] reads back.
pub(crate) fn encode<T: Record>(record: &T, format: Format) -> Vec<u8> {
    let Some(mark) = format.mark() else { return record.encode_first() };
    let mut bytes = Vec::with_capacity(USUAL);
    bytes.extend_from_slice(&mark);
    postcard::to_extend(record, bytes).expect("memory is the only thing that encoding can lack")
}

/// Reads what [`encode`] wrote, in whatever format. What follows the record is passed over. `what` names it in the error.
pub(crate) fn decode<T: Record>(bytes: &[u8], what: impl FnOnce() -> String) -> Result<T, StoreError> {
    let read = || -> Result<T, Unreadable> {
        Ok(match Format::of_record(bytes)? {
            (Format::First, record) => T::decode_first(record)?,
            (Format::Second | Format::Third, record) => postcard::from_bytes(record)?,
        })
    };
    read().map_err(|error| unreadable(error, what))
}

pub(super) fn unreadable(error: impl Into<Unreadable>, what: impl FnOnce() -> String) -> StoreError {
    StoreError::Corrupt { what: what(), reason: error.into().to_string() }
}
