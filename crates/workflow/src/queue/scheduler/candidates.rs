//! Selects the jobs of a large claim: among equally urgent jobs, those that one write of the store
//! can lease.

use crate::queue::ready_jobs::known_jobs::DispatchKey;

/// Size from which a claim chooses among more jobs than it needs, which saves 12 % of the commands.
/// Smaller claims get strictly the oldest jobs.
const MIN_BATCH_CLAIM: usize = 16;
/// Number of candidates for each job of such a claim.
const CANDIDATES_PER_JOB: usize = 4;

/// Number of first jobs among which a claim of `limit` jobs chooses.
pub(crate) fn candidate_count(limit: usize) -> usize {
    if limit >= MIN_BATCH_CLAIM {
        limit.saturating_mul(CANDIDATES_PER_JOB)
    } else {
        limit
    }
}

/// Whether one write can lease all these jobs. If so, [`prefer_few_partitions`] would choose no
/// others from more candidates.
pub(crate) fn are_of_one_partition<T>(jobs: &[(DispatchKey, T)]) -> bool {
    let partition = |(dispatch_key, _): &(DispatchKey, T)| dispatch_key.2.workflow().partition();
    jobs.iter().all(|job| partition(job) == partition(&jobs[0]))
}

/// Returns at most `limit` of these jobs, in their order. The first job and all that are more
/// urgent than the last are always included. The others are of few partitions, each with its oldest
/// first, so that a job which was not chosen soon becomes the oldest.
pub(crate) fn prefer_few_partitions<T>(
    mut jobs: Vec<(DispatchKey, T)>,
    limit: usize,
) -> Vec<(DispatchKey, T)> {
    if jobs.len() <= limit {
        return jobs;
    }
    let mut chosen = positions_of_few_partitions(&jobs, limit)
        .into_iter()
        .peekable();
    let mut positions = 0..jobs.len();
    jobs.retain(|_| {
        let at = positions.next();
        chosen.next_if(|chosen| Some(*chosen) == at).is_some()
    });
    jobs
}

/// The ascending positions of the jobs that [`prefer_few_partitions`] returns.
fn positions_of_few_partitions<T>(jobs: &[(DispatchKey, T)], limit: usize) -> Vec<usize> {
    let Some((last, _)) = jobs.last() else {
        return Vec::new();
    };
    let urgent_count = jobs.partition_point(|(dispatch_key, _)| dispatch_key.0 < last.0);
    let mut chosen: Vec<usize> = (0..urgent_count).collect();
    let partition = |at: usize| jobs[at].0.2.workflow().partition();
    let mut partitions = Vec::new();
    for at in urgent_count..jobs.len() {
        if chosen.len() < limit && !partitions.contains(&partition(at)) {
            partitions.push(partition(at));
            let others = (at..jobs.len()).filter(|&other| partition(other) == partition(at));
            chosen.extend(others.take(limit - chosen.len()));
        }
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{ReadyJob, ReadyRow};
    use crate::model::{JobIndex, Partition, Timestamp, WorkflowId};

    /// Jobs as (partition, priority), each a millisecond younger than the one before.
    fn line(jobs: &[(u16, u8)]) -> Vec<(DispatchKey, usize)> {
        let job = |(at, &(partition, priority)): (usize, &(u16, u8))| {
            let since = Timestamp::from_micros(at as u64 * 1_000);
            let workflow = WorkflowId::new(since, Partition(partition), 1);
            let queue = "q".to_owned();
            let handler = String::new();
            let limit_key = String::new();
            let entry = ReadyJob {
                queue,
                handler,
                limit_key,
                priority,
                since,
                workflow,
                job: JobIndex(0),
            };
            (
                (
                    u8::MAX - priority,
                    since,
                    ReadyRow::read(&entry.row()).unwrap().key,
                ),
                at,
            )
        };
        jobs.iter().enumerate().map(job).collect()
    }

    fn check(jobs: &[(u16, u8)], limit: usize, expected: &[usize]) {
        let chosen: Vec<usize> = prefer_few_partitions(line(jobs), limit)
            .into_iter()
            .map(|(_, at)| at)
            .collect();
        assert_eq!(chosen, expected, "{limit} of {jobs:?}");
        if jobs.len() > limit && are_of_one_partition(&line(jobs)[..limit]) {
            assert_eq!(
                chosen,
                (0..limit).collect::<Vec<_>>(),
                "the first {limit} of {jobs:?}"
            );
        }
    }

    #[test]
    fn the_first_job_is_chosen_with_others_of_its_partition() {
        let jobs = [(3, 0), (1, 0), (2, 0), (3, 0), (1, 0), (2, 0), (3, 0)];
        check(&jobs, 7, &[0, 1, 2, 3, 4, 5, 6]);
        check(&jobs, 3, &[0, 3, 6]);
        check(&jobs, 4, &[0, 1, 3, 6]);
        check(&jobs, 1, &[0]);
        check(&[(3, 0), (3, 0), (3, 0), (1, 0), (3, 0)], 3, &[0, 1, 2]);
        check(&[], 4, &[]);
    }

    #[test]
    fn more_urgent_jobs_are_never_skipped() {
        check(&[(3, 9), (1, 9), (2, 0), (3, 0), (2, 0)], 4, &[0, 1, 2, 4]);
        check(&[(3, 9), (1, 9), (2, 0), (3, 0), (2, 0)], 3, &[0, 1, 2]);
        check(&[(3, 9), (3, 0), (3, 0), (1, 0), (3, 0)], 3, &[0, 1, 2]);
    }

    #[test]
    fn small_claims_take_strictly_the_oldest() {
        assert_eq!([1, 15, 16, 100].map(candidate_count), [1, 15, 64, 400]);
    }
}
