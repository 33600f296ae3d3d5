//! A thousand small tenants, with and without one that has a million jobs in the same queue.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::crew::Crew;
use super::tenants::{Clock, create, names, queue_up, workflow};
use crate::figures::{Sheet, spread};
use crate::workflow::api::Api;
use crate::workflow::arguments::Arguments;
use crate::workflow::servers::Group;
use crate::workflow::times::Times;

/// Jobs of each small tenant.
const EACH: usize = 10;
/// A thousand jobs in a second, which two cores do easily: the rate of claims is that of the workers.
const CREW: Crew = Crew {
    workers: 16,
    busy: Duration::from_millis(14),
};

/// What was measured at so many servers on one Redis, once for each turn.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Fairness {
    servers: usize,
    /// Jobs of the large tenant.
    large: usize,
    small: usize,
    wait_p50_ms: Vec<f64>,
    wait_p99_ms: Vec<f64>,
    claims_per_second: Vec<f64>,
    /// The share of the large tenant in what was claimed meanwhile.
    large_percent: Vec<f64>,
}

pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Vec<Fairness>> {
    let mut rows = Vec::new();
    for servers in [1, 2] {
        let mut beds = Vec::new();
        for large in [0, arguments.scale.waiting] {
            let group = Group::start(arguments, servers).await?;
            let row = Fairness {
                servers,
                large,
                small: arguments.scale.tenants,
                ..Fairness::default()
            };
            if large > 0 {
                eprintln!("{large} jobs of one tenant are made");
                let mut api = Api::connect(group.apis()[0]).await?;
                queue_up(&mut api, [("open", "large")].into_iter(), large).await?;
            }
            beds.push((group, row));
        }
        for round in 1..=arguments.rounds {
            eprintln!(
                "fairness at {servers} servers, round {round} of {}",
                arguments.rounds
            );
            for (group, row) in &mut beds {
                row.turn(&group.apis()).await?;
            }
        }
        rows.extend(beds.into_iter().map(|(_, row)| row));
    }
    Ok(rows)
}

impl Fairness {
    /// The workers are at work already when the jobs of the small tenants are made.
    async fn turn(&mut self, apis: &[SocketAddr]) -> anyhow::Result<()> {
        let clock = Clock::start();
        let mut api = Api::connect(apis[0]).await?;
        let small = names(self.small);
        let expected = small.len() * EACH;
        let make = async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let made = clock.micros();
            let each = (0..EACH).flat_map(|_| {
                small
                    .iter()
                    .map(|tenant| (1, workflow("open", tenant, 1, Some(made))))
            });
            create(&mut api, each).await?;
            anyhow::Ok(made)
        };
        let crew = CREW.work(apis, clock, move |timed| timed >= expected);
        let (made, seen) = tokio::try_join!(make, crew)?;
        let seconds = (clock.micros() - made) as f64 / 1e6;
        let first = seen
            .iter()
            .position(|job| job.waited_ms.is_some())
            .unwrap_or(0);
        let meanwhile = &seen[first..];
        let large = meanwhile
            .iter()
            .filter(|job| job.waited_ms.is_none())
            .count();
        self.claims_per_second
            .push(meanwhile.len() as f64 / seconds);
        self.large_percent
            .push(100.0 * large as f64 / meanwhile.len() as f64);
        let times = Times::new(meanwhile.iter().filter_map(|job| job.waited_ms).collect());
        self.wait_p50_ms.push(times.at(0.5));
        self.wait_p99_ms.push(times.at(0.99));
        Ok(())
    }
}

pub(super) fn sheet(rows: &[Fairness]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "tenants with ten jobs each",
        "servers",
        "jobs of one more tenant",
        "wait p50, ms",
        "wait p99, ms",
        "p99 beside without",
        "claims/s",
        "its share of claims, %",
    ]);
    for row in rows {
        let without = rows
            .iter()
            .find(|other| other.servers == row.servers && other.large == 0);
        let without = without.map_or(&[][..], |without| without.wait_p99_ms.as_slice());
        let ratios = row
            .wait_p99_ms
            .iter()
            .zip(without)
            .map(|(with, without)| with / without);
        let figures = |figures: &[f64], digits| spread(figures.iter().copied(), digits);
        sheet.row(vec![
            row.small.to_string(),
            row.servers.to_string(),
            row.large.to_string(),
            figures(&row.wait_p50_ms, 0),
            figures(&row.wait_p99_ms, 0),
            spread(ratios, 2),
            figures(&row.claims_per_second, 0),
            figures(&row.large_percent, 2),
        ]);
    }
    sheet
}
