//! Notes of workers about their jobs: progress and log lines, stored with the results of a
//! workflow. No rule reads them, and they are deleted with the workflow.
//!
//! A log consists of chunks. Lines are appended to the latest chunk until it is full, and the
//! oldest chunks are deleted when the log exceeds its size. So appending never rewrites more than
//! one chunk. `notes.lua` does the same in Redis.

use std::fmt;
use std::str::FromStr;

use super::error::StoreError;
use super::{Store, each_of};
use crate::codec::change::ResultField;
use crate::codec::note::{LogLine, Progress, entry, lines};
use crate::codec::record::{decode, encode};
use crate::id::{JobIndex, WorkflowId};
use crate::time::Timestamp;

/// The largest size of a job's log, in bytes.
pub(crate) const MOST_BYTES: u64 = 64 << 10;
/// Bytes at which a chunk is full. An append rewrites one chunk, and with [`MAX_LOG_BYTES`] a log
/// has at most 17 chunks.
pub(super) const FULL: usize = 4 << 10;
/// Number of slots of a log: chunk n is stored in slot n modulo this number.
pub(crate) const SLOTS: u8 = 32;

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
pub enum Noted {
    /// It is stored.
    Yes,
    /// The workflow does not exist.
    Gone,
}

/// The log of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    /// Number of lines that were deleted before the first of `lines`.
    pub dropped: u64,
    /// The latest lines, oldest first.
    pub lines: Vec<LogLine>,
}

/// A note, encoded for the store.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(super) workflow: WorkflowId,
    pub(super) job: JobIndex,
    pub(super) progress: Option<Vec<u8>>,
    /// The encoded lines to append to the log. Empty if there are none.
    pub(super) entry: Vec<u8>,
    /// Number of lines in `entry`.
    pub(super) lines: u64,
}

/// The position and size of a job's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Extent {
    /// Number of the oldest chunk, and the number after the latest one.
    pieces: (u64, u64),
    /// Bytes of all chunks.
    bytes: u64,
    /// Lines that were ever appended.
    lines: u64,
}

impl fmt::Display for Extent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pieces: (first, next),
            bytes,
            lines,
        } = self;
        write!(formatter, "{first} {next} {bytes} {lines}")
    }
}

impl FromStr for Extent {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
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
            pieces: (first, next),
            bytes,
            lines,
        })
    }
}

impl Extent {
    fn read(stored: &[u8]) -> Result<Self, &'static str> {
        std::str::from_utf8(stored)
            .map_err(|_| "it is no text")
            .and_then(str::parse)
    }
}

fn piece(job: JobIndex, number: u64) -> ResultField {
    ResultField::LogPiece(job, (number % u64::from(SLOTS)) as u8)
}

/// A result to write; `None` removes it.
pub(super) type Put = (ResultField, Option<Vec<u8>>);

impl Written {
    fn of(note: &JobNote, store: &Store) -> Self {
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
            entry(attempt, at, note.lines.clone())
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
    pub(super) fn of_lines(workflow: WorkflowId, entry: Vec<u8>) -> Self {
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
    pub(super) fn puts<E>(
        &self,
        mut read: impl FnMut(ResultField) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Vec<Put>, E> {
        let job = self.job;
        let mut puts: Vec<Put> = Vec::new();
        puts.extend(
            self.progress
                .clone()
                .map(|progress| (ResultField::Progress(job), Some(progress))),
        );
        if self.entry.is_empty() {
            return Ok(puts);
        }
        let known = read(ResultField::Log(job))?;
        let mut log = known
            .and_then(|known| Extent::read(&known).ok())
            .unwrap_or_default();
        let (first, next) = &mut log.pieces;
        let mut latest = if next > first {
            read(piece(job, *next - 1))?.unwrap_or_default()
        } else {
            Vec::new()
        };
        if next == first || latest.len() >= FULL {
            *next += 1;
            latest.clear();
        }
        latest.extend_from_slice(&self.entry);
        log.bytes += self.entry.len() as u64;
        log.lines += self.lines;
        while log.bytes > MOST_BYTES && *first + 1 < *next {
            let oldest = piece(job, *first);
            log.bytes -= read(oldest)?
                .map_or(0, |oldest| oldest.len() as u64)
                .min(log.bytes);
            puts.push((oldest, None));
            *first += 1;
        }
        puts.push((piece(job, *next - 1), Some(latest)));
        puts.push((ResultField::Log(job), Some(log.to_string().into_bytes())));
        Ok(puts)
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
    pub async fn note(&self, notes: &[JobNote]) -> Vec<Result<Noted, StoreError>> {
        if notes.is_empty() {
            return Vec::new();
        }
        let written: Vec<Written> = notes.iter().map(|note| Written::of(note, self)).collect();
        match self {
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => each_of(notes.len(), store.note(&written).await),
            Self::Sqlite(store) => each_of(notes.len(), store.note(written).await),
            Self::Redis(store) => store.note(&written).await,
        }
    }

    /// The log of a job at one moment. Empty if the job has none.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn log(&self, workflow: WorkflowId, job: JobIndex) -> Result<Log, StoreError> {
        let pieces = (0..SLOTS).map(|slot| ResultField::LogPiece(job, slot));
        let fields: Vec<ResultField> = std::iter::once(ResultField::Log(job))
            .chain(pieces)
            .collect();
        let found = self
            .results(&[(workflow, fields)])
            .await?
            .pop()
            .unwrap_or_default();
        let Some((Some(log), pieces)) = found.split_first() else {
            return Ok(Log::default());
        };
        let what = || format!("the log of job {job} of workflow {workflow}");
        let corrupt = |reason: &str| StoreError::Corrupt {
            what: what(),
            reason: reason.to_owned(),
        };
        let log = Extent::read(log).map_err(corrupt)?;
        let mut all = Vec::new();
        let (first, next) = log.pieces;
        for number in first..next.min(first + u64::from(SLOTS)) {
            let piece = pieces
                .get((number % u64::from(SLOTS)) as usize)
                .and_then(Option::as_ref);
            all.extend(lines(piece.map_or(&[], |piece| &piece[..]), what)?);
        }
        Ok(Log {
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
