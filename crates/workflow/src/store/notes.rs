//! What workers say of their jobs, beside the results of a workflow: nobody decides anything by it, and it goes with the workflow.
//!
//! A log consists of pieces. Lines go to the end of the latest piece until that is full, and the oldest pieces go when the log has too many
//! bytes. So what is added never costs more than one piece. Redis does the same in `notes.lua`.

use std::fmt;
use std::str::FromStr;

use super::error::StoreError;
use super::{Store, each_of};
use crate::codec::change::ResultField;
use crate::codec::note::{LogLine, Progress, entry, lines};
use crate::codec::record::{decode, encode};
use crate::id::{JobIndex, WorkflowId};
use crate::time::Timestamp;

/// The most bytes that are kept of a log.
pub(crate) const MOST_BYTES: u64 = 64 << 10;
/// The bytes from which on a piece is full: what is written again when a line is added. With [`MAX_VALUE_BYTES`], 17 pieces at most.
pub(super) const FULL: usize = 4 << 10;
/// Pieces are numbered modulo this.
pub(crate) const SLOTS: u8 = 32;

/// What a worker says of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobNote {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The job in it.
    pub job: JobIndex,
    /// The attempt, from 1.
    pub attempt: u16,
    /// When it arrived.
    pub at: Timestamp,
    /// From 0 to 100, and a word for people. None: as before.
    pub progress: Option<(u8, String)>,
    /// Lines for the log.
    pub lines: Vec<String>,
}

/// What became of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It is kept.
    Yes,
    /// There is no such workflow.
    Gone,
}

/// The log of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    /// How many lines there were that are not kept any more, before the first of these.
    pub dropped: u64,
    /// The latest lines, the oldest first.
    pub lines: Vec<LogLine>,
}

/// A note as it is written.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(super) workflow: WorkflowId,
    pub(super) job: JobIndex,
    pub(super) progress: Option<Vec<u8>>,
    /// For the end of the latest piece of the log; empty when there is none.
    pub(super) entry: Vec<u8>,
    /// How many lines that has.
    pub(super) lines: u64,
}

/// The pieces that a log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Extent {
    /// The oldest piece, and the one after the latest.
    pieces: (u64, u64),
    /// Bytes of all pieces.
    bytes: u64,
    /// Lines that were ever added.
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

/// A result to write, or to remove.
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

    /// A note whose entry is these bytes.
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

    /// What must be written, in this order, where `read` gives the results that are there. A log that cannot be read begins anew.
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
    /// Adds notes to jobs, independently of each other, in their order. In Redis a write that one node has is enough: a note may be lost with it.
    ///
    /// # Errors
    /// Of each note on its own. With [`StoreError::Unknown`] it may be kept.
    ///
    /// # Cancellation
    /// When the future is dropped, any of them may be kept.
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

    /// The log of a job, as it was at one moment. Empty if there is none.
    ///
    /// # Errors
    /// It cannot be read.
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

    /// How far a job is, if a worker said so.
    ///
    /// # Errors
    /// It cannot be read.
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
