//! Test clock of a server, which a test moves ahead.

use std::time::Duration;

use serde::{Deserialize, Serialize};
#[cfg(test)]
use utoipa::ToSchema;

use crate::http::body::{self, TimeSpan};
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::http::time::Rfc3339;
use crate::state::app_state::{HandlerResult, RequestContext};

/// How far to move the clock: one of the two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(ToSchema), schema(as = Advance))]
pub(crate) struct AdvanceBody {
    /// So far. Leases end, timeouts pass and workflows are removed as if that time had passed.
    by: Option<TimeSpan>,
    /// To the first moment at which a job is ready that waits for a time, or a rate limit has room again for jobs that wait for it. Ends of
    /// leases, timeouts and removals are not waited for. Without such a moment, the clock stays.
    to_next: Option<bool>,
}

/// The clock.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct TestClock {
    now: Rfc3339,
    /// How far it was moved, in milliseconds, rounded up.
    advanced_ms: u64,
    /// Where `to_next` would move it now; null when nothing waits for a time.
    #[cfg_attr(test, schema(required))]
    next: Option<Rfc3339>,
}

/// Detail of the problem that there is no such clock.
const NO_CLOCK: &str = "this server has no clock for tests: that needs TIDEGATE_TEST_CLOCK=true, and workflows in memory";

pub(crate) async fn advance(request: &RequestContext<'_>) -> HandlerResult {
    let host = &request.api.hooks;
    let Some(clock) = &host.test_clock else {
        return Err(Problem::new(Code::NotFound, NO_CLOCK));
    };
    let advance: AdvanceBody = body::read(request.body)?;
    request.api.store_gate.wait_until_open(&host.drain).await?;
    let by = advance.resolve(request).await?;
    if !clock(by) {
        return Err(Problem::field(
            "by",
            "the clock has moved by a thousand years, its limit",
        ));
    }
    request.engine().catch_up(request.now()).await?;
    Ok(json::ok(&TestClock::read(request, by).await?))
}

impl TestClock {
    /// Reads the clock after it was moved.
    async fn read(request: &RequestContext<'_>, by: Duration) -> Result<Self, Problem> {
        let next = request.engine().next_ready_time().await?.map(Rfc3339);
        Ok(Self {
            now: Rfc3339(request.now()),
            advanced_ms: u64::try_from(by.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX),
            next,
        })
    }
}

impl AdvanceBody {
    /// Returns how far to move the clock.
    async fn resolve(self, request: &RequestContext<'_>) -> Result<Duration, Problem> {
        match (self.by, self.to_next.unwrap_or_default()) {
            (Some(by), false) => Ok(by.0),
            (None, true) => {
                let next = request.engine().next_ready_time().await?;
                Ok(next.map_or(Duration::ZERO, |next| next.since(request.now())))
            }
            _ => Err(Problem::field(
                "by",
                "expected a time span, or \"to_next\": true in place of it",
            )),
        }
    }
}
