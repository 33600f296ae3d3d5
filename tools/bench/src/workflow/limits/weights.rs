//! Shares of tenants with weights, all of whom have jobs all the time.

use std::time::{Duration, Instant};

use http::Method;
use serde::{Deserialize, Serialize};

use super::crew::Crew;
use super::tenants::{Clock, create, workflow};
use crate::figures::Sheet;
use crate::workflow::api::Api;
use crate::workflow::arguments::Arguments;
use crate::workflow::servers::Group;

const WEIGHTS: [usize; 3] = [1, 2, 5];
/// Jobs of a workflow: few, so that all partitions have jobs of each tenant.
const JOBS: usize = 100;
/// A thousand jobs in a second.
const CREW: Crew = Crew {
    workers: 16,
    busy: Duration::from_millis(14),
};
/// More jobs than that in a second.
const MOST: usize = 1_200;

/// What was measured at so many servers on one Redis.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Shares {
    servers: usize,
    seconds: f64,
    /// Jobs that were claimed, by weight.
    claimed: [usize; WEIGHTS.len()],
}

pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Shares>> {
    let mut rows = Vec::new();
    for servers in [1, 2] {
        eprintln!("weights at {servers} servers");
        let group = Group::start(arguments, servers).await?;
        let (apis, span) = (group.apis(), arguments.scale.shares_span);
        let mut api = Api::connect(apis[0]).await?;
        let each = WEIGHTS
            .map(|weight| format!(r#"{{"entries":[["open","w{weight}"]],"weight":{weight}}}"#));
        let body = format!(r#"{{"weights":[{}]}}"#, each.join(","));
        api.call(Method::PUT, "/v1/queues/default/weights", body)
            .await?;
        // The same number of each, so that the shares follow from the weights alone, and more than are claimed.
        let workflows = (span.as_secs_f64() * MOST as f64) as usize / JOBS + 1;
        let names = WEIGHTS.map(|weight| format!("w{weight}"));
        let all = (0..workflows).flat_map(|_| {
            names
                .iter()
                .map(|name| (JOBS, workflow("open", name, JOBS, None)))
        });
        create(&mut api, all).await?;
        // Another server hears of the weights.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begin = Instant::now();
        let seen = CREW
            .work(&apis, Clock::start(), move |_| begin.elapsed() >= span)
            .await?;
        let claimed = |name: &String| seen.iter().filter(|job| *job.tenant == **name).count();
        rows.push(Shares {
            servers,
            seconds: span.as_secs_f64(),
            claimed: names.each_ref().map(claimed),
        });
    }
    Ok(rows)
}

pub(super) fn sheet(rows: &[Shares]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "servers",
        "seconds",
        "weight",
        "jobs claimed",
        "share, %",
        "by weight, %",
        "one beside the other",
    ]);
    for row in rows {
        let (all, weights) = (
            row.claimed.iter().sum::<usize>() as f64,
            WEIGHTS.iter().sum::<usize>() as f64,
        );
        for (weight, claimed) in WEIGHTS.into_iter().zip(row.claimed) {
            let (share, wanted) = (
                100.0 * claimed as f64 / all,
                100.0 * weight as f64 / weights,
            );
            sheet.row(vec![
                row.servers.to_string(),
                format!("{:.0}", row.seconds),
                weight.to_string(),
                claimed.to_string(),
                format!("{share:.2}"),
                format!("{wanted:.2}"),
                format!("{:.3}", share / wanted),
            ]);
        }
    }
    sheet
}
