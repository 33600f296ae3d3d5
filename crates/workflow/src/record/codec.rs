//! States and graphs as bytes of the store.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::format::Format;
use crate::state::{AttemptError, Job, JobState, Label, LeaseEnd, Meta, Rerun, Worker};
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

/// What a store keeps. The same in all formats, if nothing else is said.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// The earliest format that can say all of it. It is written in no earlier one, also where the store has one: this process may not have
    /// noticed yet that the store is migrated.
    fn least(&self) -> Format {
        Format::First
    }

    /// Adds the record as it is in a format to what names the format.
    fn write(&self, _format: Format, bytes: Vec<u8>) -> Vec<u8> {
        extended(bytes, self)
    }

    /// Reads what [`Record::write`] added. What follows it is passed over.
    fn read(bytes: &[u8], _format: Format) -> Result<Self, postcard::Error> {
        postcard::from_bytes(bytes)
    }
}

impl Record for AttemptError {}
impl Record for Label {}
impl Record for Meta {}

/// The fields of a job in the first format, in their order.
type FirstJob = (
    (JobState, u16, u16, u64, Option<Worker>),
    (Option<Timestamp>, Option<Timestamp>, Option<Timestamp>, u32),
);

/// The fields of a job in the second and the third format, in their order.
#[derive(Serialize, Deserialize)]
pub(super) struct EarlierJob(FirstJob, u64, Option<LeaseEnd>);

impl From<&Job> for EarlierJob {
    fn from(job: &Job) -> Self {
        let lease = (
            job.state,
            job.attempt,
            job.lost,
            job.token,
            job.worker.clone(),
        );
        let moments = (
            job.ready_at,
            job.started_at,
            job.finished_at,
            job.output_bytes,
        );
        Self((lease, moments), job.fence, job.ended_by)
    }
}

impl From<EarlierJob> for Job {
    fn from(EarlierJob((lease, moments), fence, ended_by): EarlierJob) -> Self {
        let (state, attempt, lost, token, worker) = lease;
        let (ready_at, started_at, finished_at, output_bytes) = moments;
        // By whom it was skipped is not known: it stays skipped, as it did then.
        let rerun = if state == JobState::Skipped {
            Rerun::ByHand
        } else {
            Rerun::No
        };
        let job = Self {
            state,
            attempt,
            lost,
            token,
            worker,
            ready_at,
            rerun,
            lost_total: lost,
            ..Self::default()
        };
        Self {
            started_at,
            finished_at,
            output_bytes,
            fence,
            ended_by,
            ..job
        }
    }
}

impl Record for Job {
    fn write(&self, format: Format, bytes: Vec<u8>) -> Vec<u8> {
        match format {
            Format::First => extended(bytes, &EarlierJob::from(self).0),
            Format::Second | Format::Third => extended(bytes, &EarlierJob::from(self)),
            Format::Fourth => extended(bytes, self),
        }
    }

    fn read(bytes: &[u8], format: Format) -> Result<Self, postcard::Error> {
        match format {
            Format::First => Ok(EarlierJob(postcard::from_bytes(bytes)?, 0, None).into()),
            Format::Second | Format::Third => Ok(postcard::from_bytes::<EarlierJob>(bytes)?.into()),
            Format::Fourth => postcard::from_bytes(bytes),
        }
    }
}

/// The bytes with a value behind them.
pub(crate) fn extended<T: Serialize + ?Sized>(bytes: Vec<u8>, value: &T) -> Vec<u8> {
    postcard::to_extend(value, bytes).expect("memory is the only thing that encoding can lack")
}

/// The bytes that [`decode`] reads back.
pub(crate) fn encode<T: Record>(record: &T, format: Format) -> Vec<u8> {
    let format = format.max(record.least());
    let mut bytes = Vec::new();
    if let Some(mark) = format.mark() {
        bytes.reserve_exact(USUAL);
        bytes.extend_from_slice(&mark);
    }
    record.write(format, bytes)
}

/// Reads what [`encode`] wrote, in whatever format. What follows the record is passed over. `what` names it in the error.
pub(crate) fn decode<T: Record>(
    bytes: &[u8],
    what: impl FnOnce() -> String,
) -> Result<T, StoreError> {
    let read = || -> Result<T, Unreadable> {
        let (format, record) = Format::of_record(bytes)?;
        Ok(T::read(record, format)?)
    };
    read().map_err(|error| unreadable(error, what))
}

pub(super) fn unreadable(
    error: impl Into<Unreadable>,
    what: impl FnOnce() -> String,
) -> StoreError {
    StoreError::Corrupt {
        what: what(),
        reason: error.into().to_string(),
    }
}
