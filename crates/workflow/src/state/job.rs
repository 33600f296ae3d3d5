//! The record of one job.

use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use super::{JobState, LeaseEnd, Rerun, Worker};
use crate::time::Timestamp;

/// Attempts in a row that were lost or crashed, after which a job runs alone in a new process: it
/// may be what kills its workers.
const SUSPECT_AFTER: u16 = 2;

/// The record of one job. It is not stored before the first change of the job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "JobRecord")]
pub struct Job {
    /// Its state.
    pub state: JobState,
    /// The number of attempts, including the running one. Those that were lost, crashed or given
    /// back do not count.
    pub attempt: u16,
    /// Leases that ended without a report, in a row: a report of a worker sets it to 0. One more
    /// than its definition allows fails the job.
    pub lost: u16,
    /// The token of the latest lease. 0: there was none, or it was lost.
    pub token: u64,
    /// The worker that has it now or had it last.
    pub worker: Option<Worker>,
    /// When it last became ready.
    pub ready_at: Option<Timestamp>,
    /// When its latest attempt started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// The size of its output in bytes. 0: none, or null.
    pub output_bytes: u32,
    /// The number of its latest lease. Each lease of the job has a higher one than those before it.
    /// 0: it was never leased.
    pub fence: u64,
    /// Why its latest lease ended without a report of the worker. With a token: why the job is no
    /// longer as the report left it.
    pub ended_by: Option<LeaseEnd>,
    /// All attempts that were lost or crashed, for people.
    pub lost_total: u16,
    /// Attempts whose process died, in a row: another report of a worker sets it to 0, a lost lease
    /// does not.
    pub crashed: u16,
    /// The length of its lease in seconds, rounded up, while it is running.
    pub lease_seconds: u16,
    /// Whether its worker said that it stops, while it is running.
    pub stopping: bool,
    /// Whether it runs again by itself although it has run or was skipped.
    pub rerun: Rerun,
}

impl Job {
    /// Whether it may be what kills its workers, so that it has to run alone in a new process.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.lost.saturating_add(self.crashed) >= SUSPECT_AFTER
    }

    /// How many crashes and lost leases in a row are tried again, where the crashes are of a
    /// process that had other jobs, too: at least so many that it has run as a suspect.
    pub(crate) const fn most_crashes(max_lost: u16) -> u16 {
        if max_lost < SUSPECT_AFTER {
            SUSPECT_AFTER
        } else {
            max_lost
        }
    }

    /// A worker has said how an attempt ended, or an operator runs the job again: nothing was lost
    /// in a row.
    pub(crate) const fn clear_lost(&mut self) {
        self.lost = 0;
        self.crashed = 0;
    }

    /// It runs under a lease of this length.
    pub(crate) fn set_lease(&mut self, length: Duration) {
        let seconds = length.as_secs() + u64::from(length.subsec_nanos() > 0);
        self.lease_seconds = u16::try_from(seconds).unwrap_or(u16::MAX);
    }

    /// It does not run any more.
    pub(crate) const fn end_lease(&mut self) {
        self.lease_seconds = 0;
        self.stopping = false;
    }

    /// The length of its lease, rounded up to seconds.
    pub(crate) const fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_seconds as u64)
    }

    fn rare_fields(&self) -> RareFields {
        let Self {
            ended_by,
            lost_total,
            crashed,
            lease_seconds,
            stopping,
            rerun,
            ..
        } = *self;
        let is_usual = lost_total == self.lost
            && crashed == 0
            && lease_seconds == 0
            && !stopping
            && rerun == Rerun::No;
        match ended_by {
            _ if !is_usual => RareFields::More {
                ended_by,
                lost_total,
                crashed,
                lease_seconds,
                stopping,
                rerun,
            },
            Some(end) => RareFields::Ended(end),
            None => RareFields::Nothing,
        }
    }
}

/// The last part of the record: fields that most jobs which wait or have ended do not need. It
/// takes one byte then.
#[derive(Debug, Serialize, Deserialize)]
enum RareFields {
    Nothing,
    Ended(LeaseEnd),
    More {
        ended_by: Option<LeaseEnd>,
        lost_total: u16,
        crashed: u16,
        lease_seconds: u16,
        stopping: bool,
        rerun: Rerun,
    },
}

/// The record as it is read.
#[derive(Deserialize)]
#[serde(rename = "Job")]
struct JobRecord {
    state: JobState,
    attempt: u16,
    lost: u16,
    token: u64,
    worker: Option<Worker>,
    ready_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    output_bytes: u32,
    fence: u64,
    last: RareFields,
}

impl Serialize for Job {
    /// Writes what `JobRecord` reads, without a copy of the job.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut record = serializer.serialize_struct("Job", 11)?;
        record.serialize_field("state", &self.state)?;
        record.serialize_field("attempt", &self.attempt)?;
        record.serialize_field("lost", &self.lost)?;
        record.serialize_field("token", &self.token)?;
        record.serialize_field("worker", &self.worker)?;
        record.serialize_field("ready_at", &self.ready_at)?;
        record.serialize_field("started_at", &self.started_at)?;
        record.serialize_field("finished_at", &self.finished_at)?;
        record.serialize_field("output_bytes", &self.output_bytes)?;
        record.serialize_field("fence", &self.fence)?;
        record.serialize_field("last", &self.rare_fields())?;
        record.end()
    }
}

impl From<JobRecord> for Job {
    fn from(record: JobRecord) -> Self {
        let job = Self {
            state: record.state,
            attempt: record.attempt,
            lost: record.lost,
            token: record.token,
            worker: record.worker,
            ready_at: record.ready_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            output_bytes: record.output_bytes,
            fence: record.fence,
            lost_total: record.lost,
            ..Self::default()
        };
        match record.last {
            RareFields::Nothing => job,
            RareFields::Ended(end) => Self {
                ended_by: Some(end),
                ..job
            },
            RareFields::More {
                ended_by,
                lost_total,
                crashed,
                lease_seconds,
                stopping,
                rerun,
            } => Self {
                ended_by,
                lost_total,
                crashed,
                lease_seconds,
                stopping,
                rerun,
                ..job
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let check = |job: Job, bytes: usize| {
            let written = postcard::to_allocvec(&job).unwrap();
            assert_eq!(postcard::from_bytes::<Job>(&written).unwrap(), job);
            assert_eq!(written.len(), bytes, "{job:?}");
        };
        check(Job::default(), 11);
        check(
            Job {
                lost: 3,
                lost_total: 3,
                ..Job::default()
            },
            11,
        );
        check(
            Job {
                ended_by: Some(LeaseEnd::Restarted),
                ..Job::default()
            },
            12,
        );
        check(
            Job {
                lost: 1,
                lost_total: 5,
                ..Job::default()
            },
            17,
        );
        check(
            Job {
                crashed: 2,
                ended_by: Some(LeaseEnd::Expired),
                ..Job::default()
            },
            18,
        );
        check(
            Job {
                lease_seconds: 30,
                stopping: true,
                ..Job::default()
            },
            17,
        );
        check(
            Job {
                rerun: Rerun::ByHand,
                ..Job::default()
            },
            17,
        );
    }

    #[test]
    fn after_two_lost_or_crashed_attempts_in_a_row_a_job_is_a_suspect() {
        for (lost, crashed, expected) in [
            (0, 0, false),
            (1, 0, false),
            (0, 1, false),
            (1, 1, true),
            (2, 0, true),
            (0, 2, true),
        ] {
            assert_eq!(
                Job {
                    lost,
                    crashed,
                    ..Job::default()
                }
                .is_suspect(),
                expected,
                "{lost} {crashed}"
            );
        }
    }

    #[test]
    fn leases_are_rounded_up_to_seconds() {
        for (millis, seconds) in [(0, 0), (1, 1), (5_000, 5), (5_001, 6), (u64::MAX, u16::MAX)] {
            let mut job = Job::default();
            job.set_lease(Duration::from_millis(millis));
            assert_eq!(job.lease_seconds, seconds);
        }
    }
}
