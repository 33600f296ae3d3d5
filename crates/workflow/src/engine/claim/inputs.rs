//! The inputs of leased jobs: what the jobs before them left behind, as much as one answer may contain.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::claimed::{Claimed, Input, OnItsWay};
use crate::engine::Engine;
use crate::engine::desk::answer::{Leased, Returned};
use crate::engine::error::EngineError;
use crate::id::{JobIndex, WorkflowId};
use crate::record::change::ResultField;
use crate::record::codec::decode;
use crate::record::lease::LeaseRef;

/// The most bytes of params and inputs in one answer. Without a bound, a thousand jobs with large inputs, or a join of many jobs,
/// would fill the memory of the server and of the worker.
const MOST_BYTES: usize = 32 << 20;

/// Outputs and errors of jobs.
type Results = BTreeMap<(WorkflowId, ResultField), Bytes>;

impl Engine {
    /// Adds the outputs and errors of parents, with one read of the store for all that are not in memory.
    pub(super) async fn with_inputs(&self, leased: Vec<(WorkflowId, Leased)>) -> Result<Vec<OnItsWay>, EngineError> {
        let leased = within(leased, MOST_BYTES);
        let mut missing: BTreeMap<WorkflowId, Vec<ResultField>> = BTreeMap::new();
        for (id, (leased, _)) in &leased {
            for field in leased.inputs.iter().flat_map(Returned::missing) {
                missing.entry(*id).or_default().push(field);
            }
        }
        let found = self.read(missing.into_iter().collect()).await?;
        let claimed = leased.into_iter().map(|(id, (leased, omitted))| claimed(id, leased, omitted, &found));
        Ok(claimed.collect())
    }

    async fn read(&self, fields: Vec<(WorkflowId, Vec<ResultField>)>) -> Result<Results, EngineError> {
        let mut found = Results::new();
        if !fields.is_empty() {
            let results = self.store().results(&fields).await?;
            for ((id, fields), results) in fields.into_iter().zip(results) {
                found
                    .extend(fields.into_iter().zip(results).filter_map(|(field, result)| Some(((id, field), result?))));
            }
        }
        Ok(found)
    }
}

/// What the worker gets.
fn claimed(workflow: WorkflowId, leased: Leased, omitted: Vec<JobIndex>, found: &Results) -> OnItsWay {
    let Leased { job, token, expires, attempt, fence, graph, inputs, undelivered } = leased;
    let inputs = inputs.into_iter().filter_map(|returned| input(workflow, returned, found)).collect();
    let lease = LeaseRef { workflow, job, token };
    OnItsWay { claimed: Claimed { lease, expires, attempt, fence, inputs, omitted, graph }, undelivered }
}

fn input(workflow: WorkflowId, returned: Returned, found: &Results) -> Option<Input> {
    let Returned { job, state, output, error, .. } = returned;
    let result = |field| found.get(&(workflow, field));
    let output = output.or_else(|| result(ResultField::Output(job)).cloned());
    let output = output.or_else(|| state.map(|_| Bytes::from_static(b"null")))?;
    // An error that cannot be read must not keep the job from its worker.
    let error = error.and_then(|field| decode(result(field)?, || format!("an error of job {job}")).ok());
    Some(Input { job, output, state, error })
}

/// The jobs that fit into one answer, each with the parents whose output is left out. The other jobs go back to their queues. The
/// first job is always included, if necessary with only some of its inputs.
fn within(leased: Vec<(WorkflowId, Leased)>, most: usize) -> Vec<(WorkflowId, (Leased, Vec<JobIndex>))> {
    let mut fitting = Vec::with_capacity(leased.len());
    let mut left = most;
    for (id, mut leased) in leased {
        let params = bytes_of_params(&leased);
        let inputs: usize = leased.inputs.iter().map(Returned::bytes).sum();
        let mut omitted = Vec::new();
        if params + inputs > left {
            if !fitting.is_empty() {
                break;
            }
            let mut room = left.saturating_sub(params);
            leased.inputs.retain(|input| {
                let fits = input.bytes() <= room;
                room = room.saturating_sub(input.bytes());
                omitted.extend((!fits).then_some(input.job));
                fits
            });
        }
        left = left.saturating_sub(params + inputs);
        fitting.push((id, (leased, omitted)));
    }
    fitting
}

fn bytes_of_params(leased: &Leased) -> usize {
    let texts = [&leased.graph.globals, &leased.graph.jobs[leased.job.index()].params];
    texts.into_iter().flatten().map(|json| json.text().len()).sum()
}
