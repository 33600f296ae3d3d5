//! Overview for operators: rates of up to a day, and current counts.

use std::collections::BTreeMap;

use serde::Serialize;
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::json;
use crate::http::query::Query;
use crate::http::time::Rfc3339;
use crate::state::app_state::{AppState, HandlerResult, RequestContext};
use crate::state::history::{HistoryPoint, HistoryRange, NAMES};

/// The last hour or another range at this server, and what there is now.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Overview {
    /// The time between two numbers of a series, in milliseconds.
    step_ms: u64,
    /// The time of the last number of each series.
    until: Rfc3339,
    /// Numbers by name, the oldest first, at most 360 and all of complete steps: rates a second of `calls`, `decisions_ok`, `decisions_near_limit`,
    /// `decisions_over_limit`, `decisions_failed`, `workflows_created`, `jobs_started`, `jobs_succeeded`, `jobs_failed`, `jobs_retried`,
    /// `leases_lost`; and of calls that ask for decisions `decision_p50_ms` and `decision_p99_ms`, which are right within an eighth. In a range of 24 hours, a number may stand for
    /// several minutes: it is their mean, or the highest of their percentiles. `jobs_running` and `jobs_ready` (of workflows that have not ended), `workflows_failed` and `workflows_running`
    /// are numbers of the store, known while a client reads them. Null where nothing is known. Decisions are hits of limits. More names may be added.
    series: BTreeMap<&'static str, Vec<Option<f64>>>,
    now: OverviewSample,
}

/// Sample of the last second or a little more.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = OverviewEvent))]
pub(crate) struct OverviewSample {
    until: Rfc3339,
    /// A number for each name of the series.
    values: BTreeMap<&'static str, Option<f64>>,
    /// Workflows of the store by status; empty until they were counted, which is done every few
    /// seconds while a client reads them.
    workflows: BTreeMap<&'static str, u64>,
    /// Jobs by state, of workflows that have not ended.
    jobs: BTreeMap<&'static str, u64>,
    /// Partitions of the store whose home is this server.
    home_partitions: u64,
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let mut query = Query::new(request.query)?;
    let range = HistoryRange::from_query(&mut query)?;
    query.finish()?;
    let api = request.api;
    let now = take_sample(api);
    let shown = api.hooks.history.series(range);
    let column = |at: usize| shown.points.iter().map(|point| point.shown(at)).collect();
    let series = NAMES
        .into_iter()
        .enumerate()
        .map(|(at, name)| (name, column(at)))
        .collect();
    let step_ms = u64::try_from(shown.step.as_millis()).unwrap_or(u64::MAX);
    Ok(json::ok(&Overview {
        step_ms,
        until: shown.until.map_or(now.until, Rfc3339),
        series,
        now,
    }))
}

/// Takes the current sample.
pub(crate) fn take_sample(api: &AppState) -> OverviewSample {
    let hooks = &api.hooks;
    let point = hooks.history.sample(&api.metrics, &*hooks.totals);
    let values = |point: HistoryPoint| {
        NAMES
            .into_iter()
            .enumerate()
            .map(|(at, name)| (name, point.shown(at)))
            .collect()
    };
    api.metrics.request_sample();
    let counts = api.metrics.workflow_counts();
    OverviewSample {
        until: hooks.limits.now().into(),
        values: values(point),
        workflows: counts.workflows.into_iter().collect(),
        jobs: counts.jobs.into_iter().collect(),
        home_partitions: counts.home_partitions,
    }
}
