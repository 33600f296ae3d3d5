//! Jobs of tenants, each under a limit of its tenant.

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::ensure;
use serde_json::Value;

use crate::workflow::api::Api;

/// Jobs of a workflow, at most: a claim may have to read them all, which is not what is measured.
const JOBS: usize = 100;
/// Jobs of one call, about: a fraction of the longest body.
const CALL: usize = 20_000;
/// Workflows of one call, at most.
const WORKFLOWS: usize = 1_000;

/// When jobs were made and claimed, in microseconds since the comparison began.
#[derive(Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn micros(self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }
}

/// A workflow of so many ready jobs of a tenant under the limit with this key. The jobs say when they were made, if they are to be timed.
pub(super) fn workflow(key: &str, tenant: &str, jobs: usize, made: Option<u64>) -> String {
    let made = made.map_or_else(String::new, |made| format!(r#","made":{made}"#));
    let mut body = format!(
        r#"{{"name":"bench","start":"now","globals":{{"tenant":"{tenant}"{made}}},"jobs":["#
    );
    for at in 0..jobs {
        let comma = if at > 0 { "," } else { "" };
        write!(
            body,
            r#"{comma}{{"name":"j{at}","handler":"Call","limits":[{{"domain":"jobs","entries":[["{key}","$.tenant"]]}}]}}"#
        )
        .expect("writing to a string cannot fail");
    }
    body.push_str("]}");
    body
}

/// Creates workflows with few calls.
pub(super) async fn create(
    api: &mut Api,
    workflows: impl Iterator<Item = (usize, String)>,
) -> anyhow::Result<()> {
    let (mut held, mut jobs) = (Vec::new(), 0);
    for (of_one, one) in workflows {
        held.push(one);
        jobs += of_one;
        if jobs >= CALL || held.len() >= WORKFLOWS {
            send(api, &held).await?;
            (held, jobs) = (Vec::new(), 0);
        }
    }
    if !held.is_empty() {
        send(api, &held).await?;
    }
    Ok(())
}

async fn send(api: &mut Api, workflows: &[String]) -> anyhow::Result<()> {
    let answer = api
        .post(
            "/v1/workflows:batch",
            format!("{{\"workflows\":[{}]}}", workflows.join(",")),
        )
        .await?;
    let answer: Value = serde_json::from_slice(&answer)?;
    let items = answer["items"].as_array().map_or(&[][..], Vec::as_slice);
    let refused = items.iter().find(|item| item["status"] != 201);
    ensure!(
        refused.is_none() && items.len() == workflows.len(),
        "a workflow was refused: {refused:?}"
    );
    Ok(())
}

/// Creates so many jobs of each tenant, under the limit with the key that is named first.
pub(super) async fn queue_up<'a>(
    api: &mut Api,
    tenants: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    each: usize,
) -> anyhow::Result<()> {
    let parts = (0..each).step_by(JOBS).map(|from| JOBS.min(each - from));
    let of_all = parts.flat_map(|jobs| {
        tenants
            .clone()
            .map(move |(key, tenant)| (jobs, workflow(key, tenant, jobs, None)))
    });
    create(api, of_all).await
}

/// Names of tenants.
pub(super) fn names(number: usize) -> Vec<String> {
    (0..number).map(|at| format!("t{at:04}")).collect()
}
