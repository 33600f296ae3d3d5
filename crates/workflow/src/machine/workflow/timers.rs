//! Times at which jobs change by themselves: retries, ends of leases and timeouts.

use super::Workflow;
use crate::model::{JobIndex, JobState, LeaseEnd, LeaseRef, Timestamp};

impl Workflow {
    /// The time at which a job changes by itself, without gaps.
    pub(crate) fn due(&self, index: JobIndex) -> Option<Timestamp> {
        self.due_after_gap(index, Timestamp::default())
    }

    /// The time at which a job changes by itself. Leases and timeouts that ended in a gap, before
    /// `served_since`, end one lease after it. A live worker extends its lease until then.
    fn due_after_gap(&self, index: JobIndex, served_since: Timestamp) -> Option<Timestamp> {
        let job = self.job(index);
        let end = match job.state {
            JobState::Scheduled { due } => return Some(due),
            JobState::Running { expires } => self
                .times_out(index)
                .map_or(expires, |end| end.min(expires)),
            _ => return None,
        };
        // An attempt that began after the gap had its full time.
        let began_before = job.started_at.is_some_and(|started| started < served_since);
        Some(if began_before {
            end.max(served_since + job.lease())
        } else {
            end
        })
    }

    /// The end of the running attempt unless its worker reports: the earlier of timeout and lease
    /// end, whenever it is detected. The timeout counts if both are at the same time.
    pub(crate) fn attempt_end(&self, index: JobIndex, expires: Timestamp) -> LeaseEnd {
        match self.times_out(index) {
            Some(end) if end <= expires => LeaseEnd::TimedOut,
            _ => LeaseEnd::Expired,
        }
    }

    /// The time at which the running attempt of a job exceeds its timeout.
    fn times_out(&self, index: JobIndex) -> Option<Timestamp> {
        let timeout = self.graph.jobs[index.index()].timeout?;
        Some(self.job(index).started_at? + timeout)
    }

    /// Due jobs, in the order in which they would have been due without a gap.
    pub(crate) fn due_by(&self, now: Timestamp, served_since: Timestamp) -> Vec<JobIndex> {
        let is_due = |job: &JobIndex| {
            self.due_after_gap(*job, served_since)
                .is_some_and(|due| due <= now)
        };
        let mut jobs: Vec<JobIndex> = self.job_indexes().filter(is_due).collect();
        jobs.sort_by_key(|&job| self.due(job));
        jobs
    }

    /// Expired leases that continue because their workers could not extend them before
    /// `served_since`, each with its new end.
    pub(crate) fn continued_leases(
        &self,
        served_since: Timestamp,
        now: Timestamp,
    ) -> Vec<(LeaseRef, Timestamp)> {
        let lease = |index: JobIndex| {
            let job = self.job(index);
            match job.state {
                JobState::Running { expires } if expires <= now => {
                    let lease = LeaseRef {
                        workflow: self.id,
                        job: index,
                        token: job.token,
                    };
                    Some((lease, self.due_after_gap(index, served_since)?))
                }
                _ => None,
            }
        };
        self.job_indexes().filter_map(lease).collect()
    }

    /// Sets the timer to the earliest time at which a job is due.
    pub(crate) fn reset_timer(&mut self, served_since: Timestamp) {
        self.meta_mut().timer = self
            .job_indexes()
            .filter_map(|job| self.due_after_gap(job, served_since))
            .min();
    }
}
