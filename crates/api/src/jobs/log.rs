//! Log of a job, as workers have written it.

use serde::Serialize;
use tidegate_workflow::JobLog;
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::query::Query;
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext, with_read_timeout};
use crate::workflows::list::MAX_PAGE_ITEMS;

/// Lines of a log, the oldest first.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct LogPage<'a> {
    items: Vec<LogItem<'a>>,
    /// How many lines there were before these that are not kept any more: at most 64 KiB of a log are.
    dropped: u64,
    /// Send it as `after` to get what follows.
    next: String,
}

/// A line of a log.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
struct LogItem<'a> {
    /// When it arrived.
    at: Rfc3339,
    /// The attempt of the job that it is of, from 1.
    attempt: u16,
    /// Text of the worker. It may have any characters.
    text: &'a str,
}

impl<'a> LogPage<'a> {
    /// Returns at most `limit` lines that follow the first `after` lines ever written. If `after`
    /// exceeds their number, it returns the lines that are kept from their beginning.
    fn new(JobLog { dropped, lines }: &'a JobLog, after: u64, limit: usize) -> Self {
        let after = if after > dropped + lines.len() as u64 {
            0
        } else {
            after
        };
        let begin = usize::try_from(after.saturating_sub(*dropped)).unwrap_or(lines.len());
        let shown = &lines[begin..lines.len().min(begin + limit)];
        let items = shown.iter().map(|line| LogItem {
            at: Rfc3339(line.at),
            attempt: line.attempt,
            text: &line.text,
        });
        Self {
            items: items.collect(),
            dropped: dropped.saturating_sub(after),
            next: (dropped + (begin + shown.len()) as u64).to_string(),
        }
    }
}

pub(crate) async fn log(request: &RequestContext<'_>) -> HandlerResult {
    let id = request.workflow()?;
    let job = request.matched.name(1)?;
    let mut query = Query::new(request.query)?;
    let limit = query.limit(MAX_PAGE_ITEMS, MAX_PAGE_ITEMS)?;
    let wrong = |_| {
        Problem::new(
            Code::InvalidCursor,
            "after must be the next of an earlier page of this log",
        )
        .at("after")
    };
    let after = query
        .remove("after")
        .map(|text| text.parse().map_err(wrong))
        .transpose()?
        .unwrap_or(0);
    query.finish()?;
    let log = with_read_timeout(request.engine().log(id, &job)).await?;
    Ok(json::ok(&LogPage::new(&log, after, limit)))
}

#[cfg(test)]
mod tests {
    use tidegate_workflow::Timestamp;

    use tidegate_workflow::LogLine;

    use super::*;

    #[test]
    fn a_page_begins_where_the_one_before_ended() {
        let line = |number: u64| LogLine {
            attempt: 1,
            at: Timestamp::from_micros(number),
            text: number.to_string(),
        };
        let log = JobLog {
            dropped: 10,
            lines: (10..15).map(line).collect(),
        };
        let check = |after: u64, limit: usize, texts: &[&str], dropped: u64, next: &str| {
            let page = LogPage::new(&log, after, limit);
            let shown: Vec<&str> = page.items.iter().map(|item| item.text).collect();
            assert_eq!(
                (&shown[..], page.dropped, page.next.as_str()),
                (texts, dropped, next),
                "{after} {limit}"
            );
        };
        check(0, 2, &["10", "11"], 10, "12");
        check(12, 2, &["12", "13"], 0, "14");
        check(14, 2, &["14"], 0, "15");
        check(15, 2, &[], 0, "15");
        check(7, 9, &["10", "11", "12", "13", "14"], 3, "15");
        // The log has been replaced by a shorter one.
        check(16, 1, &["10"], 10, "11");
        check(u64::MAX, 1, &["10"], 10, "11");
        let none = LogPage::new(&JobLog::default(), 0, 1_000).next;
        assert_eq!(none, "0");
    }
}
