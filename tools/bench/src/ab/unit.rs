//! The units of work that two builds are compared by, and what one turn of a build showed of each.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::compare::{KEYS, Traffic};
use crate::figures::micros;
use crate::machine::{Costs, Store, Testbed};
use crate::workflow::{Api, shapes, work};

/// Workflows of two jobs that are created and executed for each second of a turn.
const WORKFLOWS_PER_SECOND: f64 = 10_000.0;
/// Workflows of one request.
const BULK: usize = 1_000;

/// What is measured on a server of its own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Decisions {
        store: Store,
        descriptors: u16,
    },
    /// Creates, executes and lists workflows.
    Workflows(Store),
}

pub(super) const WORKS: [Work; 6] = [
    Work::Decisions {
        store: Store::Embedded,
        descriptors: 1,
    },
    Work::Decisions {
        store: Store::Embedded,
        descriptors: 10,
    },
    Work::Decisions {
        store: Store::Redis,
        descriptors: 1,
    },
    Work::Decisions {
        store: Store::Redis,
        descriptors: 10,
    },
    Work::Workflows(Store::Redis),
    Work::Workflows(Store::Embedded),
];

/// What one turn of one build showed of a unit.
pub(super) struct Sample {
    pub(super) unit: String,
    pub(super) per_second: f64,
    pub(super) server_us: f64,
    pub(super) redis_us: Option<f64>,
}

impl Work {
    pub(super) fn name(self) -> String {
        match self {
            Self::Decisions {
                store: Store::Embedded,
                descriptors,
            } => format!("decisions, memory, {descriptors}"),
            Self::Decisions { descriptors, .. } => format!("decisions, Redis, {descriptors}"),
            Self::Workflows(Store::Embedded) => "workflows, SQLite".to_owned(),
            Self::Workflows(_) => "workflows, Redis".to_owned(),
        }
    }

    /// Measures one build. The first of the samples is that of the first unit, in the same order every time.
    pub(super) async fn turn(self, program: &Path, time: Duration) -> anyhow::Result<Vec<Sample>> {
        match self {
            Self::Decisions { store, descriptors } => {
                let testbed = Testbed::start(program, store).await?;
                let turn = Traffic::H2load
                    .turn(&testbed, descriptors, KEYS, time)
                    .await?;
                let unit = format!(
                    "decision, {}, {descriptors}",
                    if store == Store::Redis {
                        "Redis"
                    } else {
                        "memory"
                    }
                );
                let (per_second, server_us, redis_us) =
                    (turn.per_second, turn.server_us, turn.redis_us);
                Ok(vec![Sample {
                    unit,
                    per_second,
                    server_us,
                    redis_us,
                }])
            }
            Self::Workflows(store) => {
                workflows(&Testbed::start(program, store).await?, store, time).await
            }
        }
    }
}

async fn workflows(testbed: &Testbed, store: Store, time: Duration) -> anyhow::Result<Vec<Sample>> {
    let name = if store == Store::Redis {
        "Redis"
    } else {
        "SQLite"
    };
    let mut api = Api::connect(testbed.server.api()).await?;
    // The first registers the workflow's name.
    api.post(
        "/v1/workflows:batch",
        shapes::batch(&shapes::pair("manual"), BULK),
    )
    .await?;
    let requests = (time.as_secs_f64() * WORKFLOWS_PER_SECOND / BULK as f64).ceil() as usize;

    let mut meter = Meter::start(testbed)?;
    let batch = shapes::batch(&shapes::pair("now"), BULK);
    for _ in 0..requests {
        api.post("/v1/workflows:batch", batch.clone()).await?;
    }
    let created = meter.read(format!("workflow created, {name}"), requests * BULK)?;

    let jobs = requests * BULK * 2;
    work(testbed.server.api(), jobs).await?;
    let executed = meter.read(format!("job, {name}"), jobs)?;

    let (start, mut pages) = (Instant::now(), 0);
    while pages == 0 || start.elapsed() < time {
        let page = api.get("/v1/workflows?limit=100").await?;
        ensure!(
            page.len() > 100 * 50,
            "not a page of a hundred: {}",
            String::from_utf8_lossy(&page)
        );
        pages += 1;
    }
    Ok(vec![
        created,
        executed,
        meter.read(format!("page of 100, {name}"), pages)?,
    ])
}

/// Reads what was spent on units, one kind after the other.
struct Meter<'a> {
    testbed: &'a Testbed,
    since: (Instant, Costs),
}

impl<'a> Meter<'a> {
    fn start(testbed: &'a Testbed) -> anyhow::Result<Self> {
        Ok(Self {
            testbed,
            since: (Instant::now(), testbed.costs()?),
        })
    }

    /// What was spent on `count` units since the last reading.
    fn read(&mut self, unit: String, count: usize) -> anyhow::Result<Sample> {
        let now = (Instant::now(), self.testbed.costs()?);
        let (elapsed, spent) = (now.0 - self.since.0, now.1.since(self.since.1));
        self.since = now;
        let per_unit = |time: Duration| micros(time) / count as f64;
        Ok(Sample {
            unit,
            per_second: count as f64 / elapsed.as_secs_f64(),
            server_us: per_unit(spent.server.total),
            redis_us: spent.redis.map(per_unit),
        })
    }
}
