//! One turn of decisions: load on a server, and what each decision cost.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::h2load::{H2load, Scheme};
use crate::figures::per_call;
use crate::load::{Bodies, Distribution, Keys, Load, Shape};
use crate::machine::{Address, Costs, Testbed};

/// Counters that a load with many keys touches, whatever the number of descriptors.
pub(crate) const KEYS: u32 = 100_000;
/// Between 1.0 and 1.1, as measured for the keys of many caches.
const ZIPF_EXPONENT: f64 = 1.05;
/// Requests before a turn with one key, for each key that other turns have: 20,000 by default. Connections open, and the rate
/// becomes known.
const TRIAL: f64 = 0.2;

/// Who sends requests, and for which keys. Always ten connections of twenty streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Traffic {
    /// h2load, which sends the same body again and again: each descriptor is one hot key.
    H2load,
    /// Our load generator with one key for each descriptor.
    OneKey,
    /// Our load generator with many keys, each as often as the others.
    Uniform,
    /// Our load generator with many keys, a few of them hot.
    Zipf,
}

/// What one turn showed: processor time is for each decision.
#[derive(Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) per_second: f64,
    pub(crate) decisions: u64,
    pub(crate) server_us: f64,
    pub(crate) server_user_us: f64,
    pub(crate) server_system_us: f64,
    pub(crate) redis_us: Option<f64>,
}

impl Traffic {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::H2load => "h2load, one key",
            Self::OneKey => "one key",
            Self::Uniform => "uniform",
            Self::Zipf => "Zipf",
        }
    }

    /// Loads a fresh server for `time`; `keys` are those of all descriptors together. Fails when a request is not answered with OK.
    pub(crate) async fn turn(
        self,
        testbed: &Testbed,
        descriptors: u16,
        keys: u32,
        time: Duration,
    ) -> anyhow::Result<Turn> {
        let trial = (f64::from(keys) * TRIAL).ceil() as u64;
        let load = Requests {
            address: testbed.server.grpc(),
            descriptors,
            trial,
        };
        match self {
            Self::H2load => load.h2load(testbed, Scheme::Http, time).await,
            Self::OneKey => load.own(testbed, (Distribution::Uniform, 1), time).await,
            Self::Uniform => load.own(testbed, (Distribution::Uniform, keys), time).await,
            Self::Zipf => load.own(testbed, (Distribution::Zipf, keys), time).await,
        }
    }
}

/// Loads a fresh server with h2load and one descriptor.
pub(crate) async fn fixed(
    testbed: &Testbed,
    scheme: Scheme,
    time: Duration,
) -> anyhow::Result<Turn> {
    let trial = (f64::from(KEYS) * TRIAL).ceil() as u64;
    Requests {
        address: testbed.server.grpc(),
        descriptors: 1,
        trial,
    }
    .h2load(testbed, scheme, time)
    .await
}

/// Where requests go, and how large they are.
struct Requests {
    address: Address,
    descriptors: u16,
    /// How many to send before anything is measured.
    trial: u64,
}

impl Requests {
    async fn h2load(
        &self,
        testbed: &Testbed,
        scheme: Scheme,
        time: Duration,
    ) -> anyhow::Result<Turn> {
        if scheme == Scheme::Http {
            // h2load counts HTTP statuses only, and gRPC errors have status 200.
            self.send(Keys::new(Distribution::Uniform, 1, 0.0, 0), Some(100), time)
                .await?;
        }
        let folder = tempfile::tempdir().context("could not make a temporary folder")?;
        let body = self.write_body(folder.path())?;
        let mut h2load = H2load {
            address: self.address.clone(),
            body,
            requests: self.trial,
            scheme,
        };
        h2load.requests = (h2load.run()? * time.as_secs_f64()) as u64;
        let before = testbed.costs()?;
        let per_second = h2load.run()?;
        let spent = testbed.costs()?.since(before);
        Ok(Turn::new(per_second, h2load.requests, spent))
    }

    fn write_body(&self, folder: &Path) -> anyhow::Result<std::path::PathBuf> {
        let path = folder.join("body");
        let mut keys = Keys::new(Distribution::Uniform, 1, 0.0, 0);
        std::fs::write(&path, Bodies::new(&self.shape())?.next(&mut keys))
            .context("could not write the request body")?;
        Ok(path)
    }

    async fn own(
        &self,
        testbed: &Testbed,
        (distribution, keys): (Distribution, u32),
        time: Duration,
    ) -> anyhow::Result<Turn> {
        let keys = (keys / u32::from(self.descriptors)).max(1);
        // Every counter exists before the turn: making one costs more than adding to it.
        let fill = Keys::new(
            Distribution::Sequence,
            keys * u32::from(self.descriptors),
            0.0,
            0,
        );
        self.send(
            fill,
            Some(u64::from(keys).max(self.trial)),
            Duration::from_secs(60),
        )
        .await?;
        let before = testbed.costs()?;
        let (per_second, decisions) = self
            .send(Keys::new(distribution, keys, ZIPF_EXPONENT, 1), None, time)
            .await?;
        let spent = testbed.costs()?.since(before);
        Ok(Turn::new(per_second, decisions, spent))
    }

    /// Sends requests, at most for `time`. Returns the decisions of a second, and in all.
    async fn send(
        &self,
        keys: Keys,
        requests: Option<u64>,
        time: Duration,
    ) -> anyhow::Result<(f64, u64)> {
        let load = Load {
            address: self.address.clone(),
            connections: 10,
            streams: 20,
            shape: self.shape(),
            keys,
            rate: None,
            requests,
            warmup: Duration::ZERO,
            duration: time,
        };
        let measured = load.run(None).await?;
        let tally = &measured.tally;
        ensure!(
            tally.failures() == 0 && tally.over_limit == 0,
            "not all requests were OK: {}",
            tally.to_json()
        );
        ensure!(tally.ok > 0, "no request was answered");
        Ok((tally.ok as f64 / measured.elapsed.as_secs_f64(), tally.ok))
    }

    fn shape(&self) -> Shape {
        Shape {
            domain: "bench".into(),
            key: "key".into(),
            descriptors: self.descriptors,
            hits: 0,
        }
    }
}

impl Turn {
    fn new(per_second: f64, decisions: u64, spent: Costs) -> Self {
        let each = |time: Duration| per_call(time, decisions);
        Self {
            per_second,
            decisions,
            server_us: each(spent.server.total),
            server_user_us: each(spent.server.user),
            server_system_us: each(spent.server.system),
            redis_us: spent.redis.map(each),
        }
    }
}
