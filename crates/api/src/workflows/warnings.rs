//! Warnings about parts of a workflow that have no effect. The workflow is created nevertheless.

use std::collections::HashSet;

use serde::Serialize;
use tidegate_ratelimit::Configuration;
use tidegate_workflow::{Graph, JobIndex, Limit};
#[cfg(test)]
use utoipa::ToSchema;

/// Bounds the warnings of one workflow: a few domains show the mistake.
const MAX_WARNINGS: usize = 8;
const NO_RATE_LIMIT: &str = "no_rate_limit";
#[cfg(test)]
pub(crate) const CODES: [&str; 1] = [NO_RATE_LIMIT];

/// A part of a workflow that has no effect. The workflow is created all the same.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct CreationWarning {
    code: &'static str,
    /// The domain of a rate limit.
    domain: String,
    /// The first job with such a limit.
    job: String,
    /// A sentence for people.
    text: String,
}

/// Returns a warning for each domain of a rate limit that the configuration does not have.
///
/// Descriptors are not compared: a rule may name some of their values only, and leave the others
/// without a limit on purpose.
pub(crate) fn domains_without_rule(
    graph: &Graph,
    configuration: &Configuration,
) -> Vec<CreationWarning> {
    let mut seen = HashSet::new();
    let mut warnings = Vec::new();
    for (at, job) in graph.jobs.iter().enumerate() {
        let limits = graph.limits(JobIndex(at as u32));
        for limit in limits.into_iter().flat_map(|limits| limits.as_slice()) {
            let Limit::Units { domain, .. } = limit else {
                continue;
            };
            if seen.insert(domain) && configuration.domain_named(domain).is_none() {
                warnings.push(CreationWarning {
                    code: NO_RATE_LIMIT,
                    domain: domain.clone(),
                    job: job.name.clone(),
                    text: format!(
                        "no rule of this server has the domain '{domain}', so this limits nothing"
                    ),
                });
            }
            if warnings.len() == MAX_WARNINGS {
                return warnings;
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidegate_ratelimit::{SameDomain, Source};
    use tidegate_workflow::Policies;

    use super::*;
    use crate::http::body;
    use crate::state::traces::CreationSpan;
    use crate::workflows::definition::DefinitionBody;

    /// Compares the warnings, as domain and job, of jobs that have these limits.
    #[track_caller]
    fn check(limits_of_jobs: &[Value], expected: &[[&str; 2]]) {
        let jobs: Vec<Value> = (0..)
            .zip(limits_of_jobs)
            .map(|(at, limits)| json!({"name": format!("j{at}"), "handler": "h", "limits": limits}))
            .collect();
        let definition = json!({"name": "w", "jobs": jobs}).to_string();
        let definition: DefinitionBody<'_> = body::read(definition.as_bytes()).unwrap();
        let new = definition.resolve(None, &Policies::default(), &mut CreationSpan::default());
        let source = Source {
            name: "vendor.yaml".to_owned(),
            text: b"domain: vendor".to_vec(),
        };
        let configuration = Configuration::load(&[source], SameDomain::Refuse).unwrap();
        let warnings = domains_without_rule(&new.unwrap().graph, &configuration);
        let found: Vec<[&str; 2]> = warnings
            .iter()
            .map(|warning| [&*warning.domain, &*warning.job])
            .collect();
        assert_eq!(found, expected);
    }

    fn rate(domain: &str) -> Value {
        json!({"domain": domain, "entries": [["k", "v"]]})
    }

    #[test]
    fn each_domain_without_a_rule_is_listed_once_with_its_first_job() {
        let running = json!({"concurrency": 1, "of": "all"});
        check(&[json!([]), json!([rate("vendor"), running])], &[]);
        let both = json!([rate("vendor"), rate("vendr")]);
        let others = json!([rate("vendr"), running, rate("shop")]);
        check(
            &[json!([rate("vendor")]), both, others],
            &[["vendr", "j1"], ["shop", "j2"]],
        );
    }

    #[test]
    fn warnings_are_bounded() {
        let limits: Vec<Value> = (0..20).map(|at| json!([rate(&format!("d{at}"))])).collect();
        let names: Vec<String> = (0..8).map(|at| format!("d{at}")).collect();
        let jobs: Vec<String> = (0..8).map(|at| format!("j{at}")).collect();
        let expected: Vec<[&str; 2]> = names
            .iter()
            .zip(&jobs)
            .map(|(name, job)| [&**name, &**job])
            .collect();
        check(&limits, &expected);
    }
}
