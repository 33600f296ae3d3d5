//! Rates of limits over a range at this server.

use std::time::Duration;

use serde::Serialize;
use tidegate_ratelimit::Timestamp;
#[cfg(test)]
use utoipa::ToSchema;

use super::{MAX_LISTS_BYTES, list_within};
use crate::http::json::{self, Verbatim};
use crate::http::problem::Problem;
use crate::http::query::Query;
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};
use crate::state::history::HistoryRange;
use crate::state::history::limit_series::{LimitPoint, RuleSeries};

/// Most limits of a call.
const MAX_RULES: usize = 50;

/// Rates of limits at this server in equal steps. All steps are over.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitSeriesList))]
pub(crate) struct SeriesShown<'a> {
    /// The time between two numbers of a series, in milliseconds.
    step_ms: u64,
    /// The end of the last step.
    until: Rfc3339,
    /// The limits that are known, in the order of the query. The first 512 of the configuration are.
    #[cfg_attr(test, schema(value_type = Vec<RuleSeriesShown>, max_items = 50))]
    items: Verbatim<'a>,
}

/// Rates of a limit, the oldest first. Null where they are not known.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema), schema(as = LimitSeries))]
struct RuleSeriesShown {
    rule: Box<str>,
    /// Hits a second.
    #[cfg_attr(test, schema(max_items = 96))]
    hits: Vec<Option<f64>>,
    /// Hits a second within the limit and near its end.
    #[cfg_attr(test, schema(max_items = 96))]
    near: Vec<Option<f64>>,
    /// Hits a second that were refused. Those over a limit in shadow mode were not.
    #[cfg_attr(test, schema(max_items = 96))]
    refused: Vec<Option<f64>>,
}

impl From<RuleSeries> for RuleSeriesShown {
    fn from(RuleSeries { rule, points }: RuleSeries) -> Self {
        let column = |value: fn(&LimitPoint) -> f32| {
            let values = points.iter().map(value).map(f64::from);
            let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
            values
                .map(|value| value.is_finite().then(|| rounded(value)))
                .collect()
        };
        Self {
            rule,
            hits: column(|point| point.hits),
            near: column(|point| point.near),
            refused: column(|point| point.refused),
        }
    }
}

/// Returns the range, and at least one rule.
fn parse(text: Option<&str>) -> Result<(HistoryRange, Vec<String>), Problem> {
    let (mut query, rules) = Query::with_list(text, "rule", MAX_RULES)?;
    let range = HistoryRange::from_query(&mut query)?;
    query.finish()?;
    if rules.is_empty() {
        let expected =
            "expected the path of a limit in the configuration; several: rule=..&rule=..";
        return Err(Problem::field("rule", expected));
    }
    Ok((range, rules))
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    let age = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    Timestamp(now.0.saturating_sub(age))
}

pub(crate) async fn show(request: &RequestContext<'_>) -> HandlerResult {
    let (range, rules) = parse(request.query)?;
    let hooks = &request.api.hooks;
    let now = hooks.limits.now();
    let series = hooks.history.limit_series(range, &rules);
    let age = series.age.unwrap_or_default();
    let items = series.limits.into_iter().map(RuleSeriesShown::from);
    Ok(json::ok(&SeriesShown {
        step_ms: u64::try_from(series.step.as_millis()).unwrap_or(u64::MAX),
        until: before(now, age).into(),
        items: list_within(MAX_LISTS_BYTES, items),
    }))
}
