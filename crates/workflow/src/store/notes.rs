//! Notes of workers about their jobs: progress and log lines, stored with the results of a
//! workflow. No rule reads them, and they are deleted with the workflow.
//!
//! A log consists of chunks. Lines are appended to the latest chunk until it is full, and the
//! oldest chunks are deleted when the log exceeds its size. So appending never rewrites more than
//! one chunk. `notes.lua` does the same in Redis.

use std::fmt;
use std::ops::Range;

use super::{Store, StoreError};
use crate::codec::{
    LogLine, Progress, ResultField, decode, decode_log_lines, encode, encode_log_item,
};
use crate::model::{JobIndex, Timestamp, WorkflowId};

/// The largest size of a job's log, in bytes.
pub(crate) const MAX_LOG_BYTES: u64 = 64 << 10;
/// Bytes at which a chunk is full. An append rewrites one chunk, and with [`MAX_LOG_BYTES`] a log
/// has at most 17 chunks.
pub(super) const FULL_CHUNK_BYTES: usize = 4 << 10;
/// Number of slots of a log: chunk n is stored in slot n modulo this number.
pub(crate) const LOG_SLOTS: u8 = 32;

/// A note of a worker about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobNote {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The job in it.
    pub job: JobIndex,
    /// The attempt, from 1.
    pub attempt: u16,
    /// The time at which the server received it.
    pub at: Timestamp,
    /// Percentage and a text for people. `None` if the progress did not change.
    pub progress: Option<(u8, String)>,
    /// Lines to append to the log.
    pub lines: Vec<String>,
}

/// The outcome of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteOutcome {
    /// It is stored.
    Stored,
    /// The workflow does not exist.
    Gone,
}

/// The log of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobLog {
    /// Number of lines that were deleted before the first of `lines`.
    pub dropped: u64,
    /// The latest lines, oldest first.
    pub lines: Vec<LogLine>,
}

/// A note, encoded for the store.
#[derive(Debug, Clone)]
pub(crate) struct EncodedNote {
    pub(super) workflow: WorkflowId,
    pub(super) job: JobIndex,
    pub(super) progress: Option<Vec<u8>>,
    /// The encoded lines to append to the log. Empty if there are none.
    pub(super) entry: Vec<u8>,
    /// Number of lines in `entry`.
    pub(super) lines: u64,
}

/// The position and size of a job's log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct LogExtent {
    /// Numbers of the chunks, the oldest first.
    chunks: Range<u64>,
    /// Bytes of all chunks.
    bytes: u64,
    /// Lines that were ever appended.
    lines: u64,
}

impl fmt::Display for LogExtent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            chunks: Range { start, end },
            bytes,
            lines,
        } = self;
        write!(formatter, "{start} {end} {bytes} {lines}")
    }
}

impl LogExtent {
    fn read(stored: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(stored).map_err(|_| "it is no text")?;
        let wrong = "it is not four numbers";
        let numbers: Vec<u64> = text
            .split(' ')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(|_| wrong)?;
        let [first, next, bytes, lines] = numbers[..] else {
            return Err(wrong);
        };
        Ok(Self {
            chunks: first..next,
            bytes,
            lines,
        })
    }
}

fn chunk_field(job: JobIndex, number: u64) -> ResultField {
    ResultField::LogPiece(job, (number % u64::from(LOG_SLOTS)) as u8)
}

/// A result to write; `None` removes it.
pub(super) type ResultWrite = (ResultField, Option<Vec<u8>>);

impl LogExtent {
    /// Drops the oldest chunks of a log that is too long. Returns their fields.
    fn drop_oldest<E>(
        &mut self,
        job: JobIndex,
        mut read: impl FnMut(ResultField) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Vec<ResultField>, E> {
        let mut dropped = Vec::new();
        while self.bytes > MAX_LOG_BYTES && self.chunks.start + 1 < self.chunks.end {
            let oldest = chunk_field(job, self.chunks.start);
            let bytes = read(oldest)?.map_or(0, |oldest| oldest.len() as u64);
            self.bytes = self.bytes.saturating_sub(bytes);
            dropped.push(oldest);
            self.chunks.start += 1;
        }
        Ok(dropped)
    }
}

impl EncodedNote {
    fn new(note: &JobNote, store: &Store) -> Self {
        let JobNote {
            workflow,
            job,
            attempt,
            at,
            ..
        } = *note;
        let progress = note.progress.as_ref().map(|(percent, text)| {
            encode(
                &Progress {
                    attempt,
                    at,
                    percent: *percent,
                    text: text.clone(),
                },
                store.format(),
            )
        });
        let entry = if note.lines.is_empty() {
            Vec::new()
        } else {
            encode_log_item(attempt, at, note.lines.clone())
        };
        Self {
            workflow,
            job,
            progress,
            entry,
            lines: note.lines.len() as u64,
        }
    }

    /// A note whose encoded log lines are `entry`.
    #[cfg(test)]
    pub(super) fn with_lines(workflow: WorkflowId, entry: Vec<u8>) -> Self {
        Self {
            workflow,
            job: JobIndex(0),
            progress: None,
            entry,
            lines: 1,
        }
    }

    /// The results to write, in this order. `read` returns a stored result. A log whose extent
    /// cannot be decoded begins anew.
    pub(super) fn result_writes<E>(
        &self,
        mut read: impl FnMut(ResultField) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Vec<ResultWrite>, E> {
        let job = self.job;
        let mut writes: Vec<ResultWrite> = Vec::new();
        writes.extend(
            self.progress
                .clone()
                .map(|progress| (ResultField::Progress(job), Some(progress))),
        );
        if self.entry.is_empty() {
            return Ok(writes);
        }
        let known = read(ResultField::Log(job))?;
        let mut log = known
            .and_then(|known| LogExtent::read(&known).ok())
            .unwrap_or_default();
        let mut latest = if log.chunks.is_empty() {
            Vec::new()
        } else {
            read(chunk_field(job, log.chunks.end - 1))?.unwrap_or_default()
        };
        if log.chunks.is_empty() || latest.len() >= FULL_CHUNK_BYTES {
            log.chunks.end += 1;
            latest.clear();
        }
        latest.extend_from_slice(&self.entry);
        log.bytes += self.entry.len() as u64;
        log.lines += self.lines;
        for oldest in log.drop_oldest(job, &mut read)? {
            writes.push((oldest, None));
        }
        writes.push((chunk_field(job, log.chunks.end - 1), Some(latest)));
        writes.push((ResultField::Log(job), Some(log.to_string().into_bytes())));
        Ok(writes)
    }
}

impl Store {
    /// Adds notes to jobs in their order, independently of each other. In Redis a note does not
    /// wait for replicas, so a failover may lose it.
    ///
    /// # Errors
    /// Each note has its own error. With [`StoreError::Unknown`] the note may be stored.
    ///
    /// # Cancellation
    /// When the future is dropped, any note may be stored.
    pub async fn add_notes(&self, notes: &[JobNote]) -> Vec<Result<NoteOutcome, StoreError>> {
        if notes.is_empty() {
            return Vec::new();
        }
        let encoded: Vec<EncodedNote> = notes
            .iter()
            .map(|note| EncodedNote::new(note, self))
            .collect();
        each_answer!(self, notes.len(), store => store.add_notes(encoded).await)
    }

    /// The log of a job at one moment. Empty if the job has none.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn log(&self, workflow: WorkflowId, job: JobIndex) -> Result<JobLog, StoreError> {
        let chunks = (0..LOG_SLOTS).map(|slot| ResultField::LogPiece(job, slot));
        let fields: Vec<ResultField> = std::iter::once(ResultField::Log(job))
            .chain(chunks)
            .collect();
        let found = self
            .results(&[(workflow, fields)])
            .await?
            .pop()
            .unwrap_or_default();
        let Some((Some(log), chunks)) = found.split_first() else {
            return Ok(JobLog::default());
        };
        let what = || format!("the log of job {job} of workflow {workflow}");
        let corrupt = |reason: &str| StoreError::corrupt(what(), reason);
        let log = LogExtent::read(log).map_err(corrupt)?;
        let mut all = Vec::new();
        for number in log.chunks.take(LOG_SLOTS.into()) {
            let chunk = chunks
                .get((number % u64::from(LOG_SLOTS)) as usize)
                .and_then(Option::as_ref);
            all.extend(decode_log_lines(
                chunk.map_or(&[], |chunk| &chunk[..]),
                what,
            )?);
        }
        Ok(JobLog {
            dropped: log.lines.saturating_sub(all.len() as u64),
            lines: all,
        })
    }

    /// The progress of a job, if a worker reported it.
    ///
    /// # Errors
    /// The progress cannot be read.
    pub async fn progress(
        &self,
        workflow: WorkflowId,
        job: JobIndex,
    ) -> Result<Option<Progress>, StoreError> {
        let found = self
            .results(&[(workflow, vec![ResultField::Progress(job)])])
            .await?
            .pop()
            .unwrap_or_default();
        let found = found.into_iter().flatten().next();
        found
            .map(|bytes| {
                decode(&bytes, || {
                    format!("the progress of job {job} of workflow {workflow}")
                })
            })
            .transpose()
    }
}
