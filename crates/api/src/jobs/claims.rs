//! Workers ask for jobs.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tidegate_workflow::{Claim, Claimed, EngineError, MAX_NAME};
use tokio::time::{Instant, timeout_at};

use crate::activity::Event;
use crate::edge::ask::{Answer, Ask, Context};
use crate::edge::body::{self, Span};
use crate::edge::json::Json;
use crate::edge::problem::Problem;

/// Most jobs of one claim.
const MOST_JOBS: usize = 1_000;
/// Most queues of one claim.
const MOST_QUEUES: usize = 100;
const LEASE: Duration = Duration::from_secs(30);
/// Shorter ones would be lost to a pause of the network, longer ones leave the jobs of a dead worker lying.
const LEASES: std::ops::RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(3_600);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What a worker asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimBody {
    queues: Vec<String>,
    worker: String,
    limit: Option<usize>,
    lease: Option<Span>,
    wait: Option<Span>,
}

impl ClaimBody {
    /// What to claim, and how long to wait for it. `prefix` leads to this part of the request.
    pub(crate) fn resolve(self, prefix: &str) -> Result<(Claim, Duration), Problem> {
        let path = |field: &str| format!("{prefix}{field}");
        if self.queues.is_empty() || self.queues.len() > MOST_QUEUES {
            return Err(Problem::field(path("queues"), format!("expected 1 to {MOST_QUEUES} names")));
        }
        let wrong = |path: String| {
            Problem::field(path, format!("expected a name of 1 to {MAX_NAME} bytes without control characters"))
        };
        if let Some(at) = self.queues.iter().position(|name| !is_name(name)) {
            return Err(wrong(path(&format!("queues[{at}]"))));
        }
        if !is_name(&self.worker) {
            return Err(wrong(path("worker")));
        }
        let limit = self.limit.unwrap_or(1);
        if !(1..=MOST_JOBS).contains(&limit) {
            return Err(Problem::field(path("limit"), format!("expected a number from 1 to {MOST_JOBS}")));
        }
        let lease = lease(self.lease, &path("lease"))?;
        let wait = self.wait.map_or(Duration::ZERO, |wait| wait.0);
        if wait > LONGEST_WAIT {
            return Err(Problem::field(path("wait"), format!("expected at most {} s", LONGEST_WAIT.as_secs())));
        }
        let mut queues = self.queues;
        queues.sort_unstable();
        queues.dedup();
        Ok((Claim { queues, worker: self.worker, limit, lease }, wait))
    }
}

/// Whether a queue could have this name, and a terminal show it.
fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// The length of a lease, if it is within bounds.
pub(crate) fn lease(given: Option<Span>, path: &str) -> Result<Duration, Problem> {
    let lease = given.map_or(LEASE, |lease| lease.0);
    let wrong = || Problem::field(path, "expected a time span from 5s to 1h");
    LEASES.contains(&lease).then_some(lease).ok_or_else(wrong)
}

pub(crate) async fn claim(ask: &Ask<'_>) -> Answer {
    let (claim, wait) = body::read::<ClaimBody>(ask.body)?.resolve("")?;
    let claimed = match ask.api.engine.claim(&claim, ask.api.now()).await? {
        none if none.is_empty() => wait_for(ask.api, &claim, wait).await?,
        claimed => claimed,
    };
    ask.api.activity.add(Event::Claimed, claimed.len() as u64);
    let json = Json::of(|json| json.key("jobs").array(&claimed, write));
    Ok(json.answer(StatusCode::OK))
}

/// Claims again whenever work arrives, until there is some, the time is over, or the server drains.
pub(crate) async fn wait_for(api: &Context, claim: &Claim, wait: Duration) -> Result<Vec<Claimed>, EngineError> {
    let until = Instant::now() + wait;
    let drain = &api.host.drain;
    loop {
        if wait.is_zero() || drain.is_cancelled() || Instant::now() >= until {
            return Ok(Vec::new());
        }
        // What arrives between the claim and the wait counts too.
        let arrival = api.engine.arrival(&claim.queues);
        let claimed = api.engine.claim(claim, api.now()).await?;
        if !claimed.is_empty() {
            return Ok(claimed);
        }
        tokio::select! {
            _ = timeout_at(until, arrival) => {}
            () = drain.cancelled() => {}
        }
    }
}

/// A job as a worker gets it.
pub(crate) fn write(json: &mut Json, claimed: &Claimed) {
    let (graph, job) = (claimed.graph(), claimed.job());
    json.object(|json| {
        json.key("lease").plain(claimed.lease);
        json.key("lease_expires_at").time(claimed.expires);
        json.key("workflow_id").plain(claimed.lease.workflow);
        json.key("workflow_name").string(&graph.label.name);
        json.key("job").string(&job.name);
        json.key("handler").string(&job.handler);
        json.key("queue").string(&job.queue);
        json.key("attempt").number(claimed.attempt);
        let text = |json: &'_ Option<tidegate_workflow::Json>| json.as_ref().map(|json| json.text().to_owned());
        json.key("params").raw(merged(text(&graph.globals), text(&job.params)).as_bytes());
        json.key("inputs").array(&claimed.inputs, |json, input| {
            let parent = &graph.jobs[input.job.index()];
            json.object(|json| {
                json.key("job").string(&parent.name);
                json.key("handler").string(&parent.handler);
                json.key("output").raw(&input.output);
            });
        });
        json.key("omitted_inputs").array(&claimed.omitted, |json, parent| {
            json.string(&graph.jobs[parent.index()].name);
        });
        json.key("timeout_ms").maybe(job.timeout, |json, timeout| json.number(timeout.as_millis() as u64));
    });
}

/// One object: what is in both comes from the second.
fn merged(below: Option<String>, above: Option<String>) -> String {
    let (below, above) = match (below, above) {
        (None, None) => return "{}".to_owned(),
        (Some(one), None) | (None, Some(one)) => return one,
        (Some(below), Some(above)) => (below, above),
    };
    let entries = |text| serde_json::from_str::<Entries<'_>>(text).map(|entries| entries.0);
    let (Ok(below), Ok(above)) = (entries(&below), entries(&above)) else {
        // A key is no Unicode, such as half of a surrogate pair. Of a key that is there twice, readers take the second.
        return joined(&below, &above);
    };
    let mut json = Json::default();
    json.object(|json| {
        let covered = |key: &str| above.iter().any(|(known, _)| known == key);
        for (key, value) in below.iter().filter(|(key, _)| !covered(key)).chain(&above) {
            json.key(key).raw(value.get().as_bytes());
        }
    });
    String::from_utf8(json.text()).expect("both are text")
}

/// Two objects as one, entries as they are.
fn joined(below: &str, above: &str) -> String {
    fn inside(object: &str) -> &str {
        let object = object.trim();
        object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default().trim()
    }
    let (below, above) = (inside(below), inside(above));
    let comma = if below.is_empty() || above.is_empty() { "" } else { "," };
    format!("{{{below}{comma}{above}}}")
}

/// The entries of an object, values as they are.
struct Entries<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Entries<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    entries.push((Cow::Owned(key), value));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_lie_over_globals_and_values_stay_as_they_are() {
        let check = |globals: Option<&str>, params: Option<&str>, expected: &str| {
            assert_eq!(merged(globals.map(str::to_owned), params.map(str::to_owned)), expected);
        };
        check(None, None, "{}");
        check(Some(r#"{"a": 1.10}"#), None, r#"{"a": 1.10}"#);
        check(None, Some(r#"{"b":1e400}"#), r#"{"b":1e400}"#);
        check(Some(r#"{"a":1.10,"b":[1, 2]}"#), Some(r#"{"\u0061":null,"c":{}}"#), r#"{"b":[1, 2],"a":null,"c":{}}"#);
        check(Some(r#" {"\ud800":1} "#), Some(r#"{"a":{}}"#), r#"{"\ud800":1,"a":{}}"#);
        check(Some("{}"), Some(r#"{ "\udfff": [{}] }"#), r#"{"\udfff": [{}]}"#);
        check(Some(r#"{"\ud800":{}}"#), Some("{ }"), r#"{"\ud800":{}}"#);
    }
}
