//! The record of one job.

use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use super::workflow_state::WorkerName;
use super::{JobState, LeaseEnd, Rerun, Timestamp};

/// Losses and crashes in a row after which a job runs alone in a new process, because the job may
/// be what kills its workers.
const SUSPECT_AFTER: u16 = 2;

/// The record of a job. It is stored with the first change of the job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "JobRecord")]
pub struct Job {
    /// The state.
    pub state: JobState,
    /// The number of attempts, including the running one. Lost, crashed and returned attempts do
    /// not count.
    pub attempt: u16,
    /// Leases in a row that ended without a report. A report of a worker resets it. A number above
    /// the maximum of the definition fails the job.
    pub lost: u16,
    /// The token of the latest lease. 0 if there was none, or if it was revoked.
    pub token: u64,
    /// The worker of the current or latest lease.
    pub worker: Option<WorkerName>,
    /// The latest time at which the job became ready.
    pub ready_at: Option<Timestamp>,
    /// The start of the latest attempt.
    pub started_at: Option<Timestamp>,
    /// The time of the end.
    pub finished_at: Option<Timestamp>,
    /// The size of the output in bytes. 0 for none or `null`.
    pub output_bytes: u32,
    /// The number of the latest lease, which increases with each lease of the job. 0 if it was
    /// never leased.
    pub fence: u64,
    /// The reason why the latest lease ended without a report. With a token: the reason why the job
    /// has changed since the report.
    pub ended_by: Option<LeaseEnd>,
    /// Number of all lost or crashed attempts, for people.
    pub lost_total: u16,
    /// Attempts in a row whose process died. Any other report of a worker resets it, a lost lease
    /// does not.
    pub crashed: u16,
    /// The length of the current lease in seconds, rounded up.
    pub lease_seconds: u16,
    /// Whether the worker of the current lease announced that it stops.
    pub stopping: bool,
    /// The condition under which the job runs again by itself.
    pub rerun: Rerun,
}

impl Job {
    /// Whether the job may be what kills its workers, so that it must run alone in a new process.
    #[must_use]
    pub const fn is_suspect(&self) -> bool {
        self.lost.saturating_add(self.crashed) >= SUSPECT_AFTER
    }

    /// Maximum crashes and lost leases in a row that are tried again if the crashed process also
    /// had other jobs. It is high enough for the job to run as a suspect first.
    pub(crate) const fn max_crashes(max_lost: u16) -> u16 {
        if max_lost < SUSPECT_AFTER {
            SUSPECT_AFTER
        } else {
            max_lost
        }
    }

    /// Resets the counters of losses in a row: a worker reported the end of an attempt, or an
    /// operator runs the job again.
    pub(crate) const fn clear_lost(&mut self) {
        self.lost = 0;
        self.crashed = 0;
    }

    /// Records the length of a new lease.
    pub(crate) fn set_lease(&mut self, length: Duration) {
        let seconds = length.as_secs() + u64::from(length.subsec_nanos() > 0);
        self.lease_seconds = u16::try_from(seconds).unwrap_or(u16::MAX);
    }

    /// Clears the fields of a running job.
    pub(crate) const fn end_lease(&mut self) {
        self.lease_seconds = 0;
        self.stopping = false;
    }

    /// The length of the lease, rounded up to seconds.
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

/// The last part of the record: fields that most waiting or ended jobs do not need. It then takes
/// one byte.
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

/// The decoded form of the record.
#[derive(Deserialize)]
#[serde(rename = "Job")]
struct JobRecord {
    state: JobState,
    attempt: u16,
    lost: u16,
    token: u64,
    worker: Option<WorkerName>,
    ready_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    output_bytes: u32,
    fence: u64,
    last: RareFields,
}

impl Serialize for Job {
    /// Encodes the fields of `JobRecord` without a copy of the job.
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
