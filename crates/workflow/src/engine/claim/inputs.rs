//! Inputs of leased jobs: outputs and errors of their parents.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::claimed::{Claimed, Input};
use super::leases::{LeasedBatch, json_byte_len, json_len};
use crate::codec::{ResultField, decode};
use crate::engine::Engine;
use crate::engine::actor::answer::{LeasedJob, MAX_ERROR_BYTES, ParentResult};
use crate::engine::context::error::EngineError;
use crate::model::{AttemptError, JobIndex, LeaseRef, WorkflowId};

/// Outputs and errors of jobs.
type ParentResults = BTreeMap<(WorkflowId, ResultField), Bytes>;

impl Engine {
    /// Completes leases for the worker: reads the outputs and errors of parents that are not in
    /// memory, with one call of the store.
    ///
    /// # Errors
    /// The store failed. The jobs are returned to their queues.
    ///
    /// # Cancellation
    /// When the future is dropped, the jobs are returned to their queues at once.
    pub async fn deliver(&self, leases: LeasedBatch) -> Result<Vec<Claimed>, EngineError> {
        let mut missing: BTreeMap<WorkflowId, Vec<ResultField>> = BTreeMap::new();
        for (id, leased, _) in &leases.jobs {
            for field in leased.inputs.iter().flat_map(ParentResult::missing_fields) {
                missing.entry(*id).or_default().push(field);
            }
        }
        let found = self.read_results(missing.into_iter().collect()).await?;
        let each = leases
            .jobs
            .into_iter()
            .map(|(id, leased, omitted)| self.make_claimed(id, leased, omitted, &found));
        Ok(each.collect())
    }

    /// Makes the answer to the worker. From now on the job returns to its queue only if the worker
    /// reports that it did not begin.
    fn make_claimed(
        &self,
        workflow: WorkflowId,
        leased: LeasedJob,
        omitted: Vec<JobIndex>,
        found: &ParentResults,
    ) -> Claimed {
        let LeasedJob {
            job,
            token,
            expires,
            attempt,
            fence,
            suspect,
            graph,
            inputs,
            mut undelivered,
        } = leased;
        let lease = LeaseRef {
            workflow,
            job,
            token,
        };
        if let Some(charged) = undelivered.mark_delivered() {
            self.core
                .unstarted_charges
                .insert(lease, charged, expires, self.queues().now());
        }
        let inputs = inputs
            .into_iter()
            .filter_map(|returned| make_input(workflow, returned, found))
            .collect();
        Claimed {
            lease,
            expires,
            attempt,
            fence,
            suspect,
            inputs,
            omitted,
            graph,
        }
    }

    async fn read_results(
        &self,
        fields: Vec<(WorkflowId, Vec<ResultField>)>,
    ) -> Result<ParentResults, EngineError> {
        let mut found = ParentResults::new();
        if !fields.is_empty() {
            let results = self.store().results(&fields).await?;
            for ((id, fields), results) in fields.into_iter().zip(results) {
                found.extend(
                    fields
                        .into_iter()
                        .zip(results)
                        .filter_map(|(field, result)| Some(((id, field), result?))),
                );
            }
        }
        Ok(found)
    }
}

fn make_input(
    workflow: WorkflowId,
    returned: ParentResult,
    found: &ParentResults,
) -> Option<Input> {
    let ParentResult {
        job,
        state,
        output,
        error,
        ..
    } = returned;
    let result = |field| found.get(&(workflow, field));
    let output = output.or_else(|| result(ResultField::Output(job)).cloned());
    let output = output.or_else(|| state.map(|_| Bytes::from_static(b"null")))?;
    // An error that cannot be decoded must not withhold the job from its worker.
    let error =
        error.and_then(|field| decode(result(field)?, || format!("an error of job {job}")).ok());
    Some(Input {
        job,
        output,
        state,
        error: error.map(truncated),
    })
}

/// Truncates an error to the bytes that its answer has reserved. In JSON, a control character takes
/// six bytes.
fn truncated(mut error: AttemptError) -> AttemptError {
    let mut left = MAX_ERROR_BYTES.saturating_sub(json_len(&error.kind));
    let fits = |(_, byte): &(usize, u8)| {
        let size = json_byte_len(*byte);
        let fits = size <= left;
        left = left.saturating_sub(size);
        !fits
    };
    if let Some((end, _)) = error.message.bytes().enumerate().find(fits) {
        let end = (0..=end.min(error.message.len()))
            .rev()
            .find(|&at| error.message.is_char_boundary(at))
            .unwrap_or(0);
        error.message.truncate(end);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;

    #[test]
    fn an_error_takes_no_more_than_it_was_counted_for() {
        let check = |message: String, expected: usize| {
            let at = Timestamp::from_micros(0);
            let kind = "\"é\"".to_owned();
            let error = AttemptError {
                attempt: 1,
                at,
                worker: None,
                kind,
                message,
                trace: None,
            };
            let kept = truncated(error);
            assert_eq!(kept.message.len(), expected);
            assert!(json_len(&kept.kind) + json_len(&kept.message) <= MAX_ERROR_BYTES);
        };
        check("x".repeat(16 << 10), 16 << 10);
        check("\"".repeat(16 << 10), 16 << 10);
        check("\u{1}".repeat(16 << 10), (MAX_ERROR_BYTES - 6) / 6);
        check(
            format!("{}é", "x".repeat(MAX_ERROR_BYTES - 7)),
            MAX_ERROR_BYTES - 7,
        );
    }
}
