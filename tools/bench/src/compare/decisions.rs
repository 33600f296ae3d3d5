//! One turn of decisions: load on a server, and the cost of each decision.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::h2load::H2load;
use crate::figures::Calls;
use crate::load::{Distribution, KeyStream, Load, Shape};
use crate::machine::{MeasuredCost, Meter, Testbed};

/// Number of counters that a load with many keys touches, whatever the number of descriptors.
pub(crate) const KEYS: u32 = 100_000;
/// Exponent of the Zipf distribution: between 1.0 and 1.1, as measured for the keys of many caches.
const ZIPF_EXPONENT: f64 = 1.05;
/// Requests before a turn with one key, for each key of the other turns: 20,000 by default. They
/// open connections and determine the rate.
const TRIAL_REQUESTS_PER_KEY: f64 = 0.2;

/// The client that sends requests, and its keys. Always ten connections of twenty streams.
#[derive(Clone, Copy)]
pub(crate) enum Traffic {
    /// h2load, which repeats one body: each descriptor is one hot key.
    H2load,
    /// The load generator of this crate with one key for each descriptor.
    OneKey,
    /// The load generator of this crate with many keys of equal frequency.
    Uniform,
    /// The load generator of this crate with many keys, a few of them hot.
    Zipf,
}

/// The result of one turn.
pub(crate) struct Decisions {
    pub(crate) per_second: f64,
    pub(crate) count: u64,
    pub(crate) spent: MeasuredCost,
}

impl Traffic {
    pub(crate) const ALL: [Self; 4] = [Self::H2load, Self::OneKey, Self::Uniform, Self::Zipf];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::H2load => "h2load, one key",
            Self::OneKey => "one key",
            Self::Uniform => "uniform",
            Self::Zipf => "Zipf",
        }
    }

    /// Loads a new server for `time`. `keys` are those of all descriptors in all. Fails if a
    /// request is not answered with OK.
    pub(crate) async fn turn(
        self,
        testbed: &Testbed,
        descriptors: u16,
        keys: u32,
        time: Duration,
    ) -> Result<Decisions> {
        let requests = Requests {
            testbed,
            descriptors,
            trial: (f64::from(keys) * TRIAL_REQUESTS_PER_KEY).ceil() as u64,
            time,
        };
        let each = (keys / u32::from(descriptors)).max(1);
        match self {
            Self::H2load => requests.h2load().await,
            Self::OneKey => requests.generated(Distribution::Uniform, 1).await,
            Self::Uniform => requests.generated(Distribution::Uniform, each).await,
            Self::Zipf => requests.generated(Distribution::Zipf, each).await,
        }
    }
}

/// The target and the size of requests.
struct Requests<'a> {
    testbed: &'a Testbed,
    descriptors: u16,
    /// Number of requests before the measurement.
    trial: u64,
    time: Duration,
}

impl Requests<'_> {
    async fn h2load(&self) -> Result<Decisions> {
        // h2load counts HTTP statuses only, and gRPC errors have status 200.
        self.send(KeyStream::sequence(1), Some(100)).await?;
        let shape = Shape::new("key", self.descriptors);
        let h2load = H2load::new(self.testbed.server.grpc(), &shape)?;
        let count = (h2load.run(self.trial)? * self.time.as_secs_f64()) as u64;
        let mut meter = Meter::start(self.testbed)?;
        let per_second = h2load.run(count)?;
        Ok(Decisions {
            per_second,
            count,
            spent: meter.read()?,
        })
    }

    /// Sends requests for `keys` keys of each descriptor.
    async fn generated(&self, distribution: Distribution, keys: u32) -> Result<Decisions> {
        // Every counter exists before the turn, because creating one costs more than adding to it.
        let all = keys * u32::from(self.descriptors);
        let requests = u64::from(keys).max(self.trial);
        self.send(KeyStream::sequence(all), Some(requests)).await?;
        let mut meter = Meter::start(self.testbed)?;
        let drawn = KeyStream::new(distribution, keys, ZIPF_EXPONENT, 1);
        let calls = self.send(drawn, None).await?;
        Ok(Decisions {
            per_second: calls.per_second(),
            count: calls.answers.ok,
            spent: meter.read()?,
        })
    }

    /// Sends a number of requests, or sends for the time of a turn.
    async fn send(&self, keys: KeyStream, requests: Option<u64>) -> Result<Calls> {
        let time = requests.map_or(self.time, |_| Duration::from_secs(60));
        let shape = Shape::new("key", self.descriptors);
        let load = Load {
            keys,
            requests,
            ..Load::new(self.testbed.server.grpc(), shape, time)
        };
        let calls = load.run(None).await?.calls;
        let answers = &calls.answers;
        ensure!(
            answers.failures() == 0 && answers.over_limit == 0 && answers.ok > 0,
            "not all requests were OK: {}",
            answers.to_json()
        );
        Ok(calls)
    }
}
