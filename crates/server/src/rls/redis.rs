//! Connections to Redis: made for each core, waited for at start, and watched for health.

use std::time::{Duration, Instant};

use tidegate_pipeline::{Batch, Client, CommandError};
use tokio::time::{interval, sleep, timeout};
use tracing::{info, warn};

use crate::error::ServeError;
use crate::operate::health::{Health, Part};
use crate::settings::{Redis, RedisServer};
use crate::supervise::Supervisor;

/// The longest wait for one PING.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait between two PINGs when health depends on them.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// The clients of one core.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    pub(crate) main: Client,
    pub(crate) per_second: Option<Client>,
}

impl Clients {
    /// Clients on the current runtime. Connections are opened when they are needed.
    pub(crate) fn new(settings: &Redis) -> Result<Self, ServeError> {
        let client = |server: &RedisServer| {
            Client::new(server.config.clone())
                .map_err(|source| ServeError::Redis { address: server.shown.clone(), reason: source.to_string() })
        };
        Ok(Self { main: client(&settings.main)?, per_second: settings.per_second.as_ref().map(client).transpose()? })
    }
}

/// Waits until every Redis answers. The wait between two attempts doubles up to a bound.
///
/// # Errors
/// Redis did not answer within the time that the settings allow.
pub(crate) async fn wait(settings: &Redis, clients: &Clients) -> Result<(), ServeError> {
    let second = settings.per_second.as_ref().zip(clients.per_second.as_ref());
    for (server, client) in second.into_iter().chain([(&settings.main, &clients.main)]) {
        wait_for(settings, server, client).await?;
    }
    Ok(())
}

async fn wait_for(settings: &Redis, server: &RedisServer, client: &Client) -> Result<(), ServeError> {
    let started = Instant::now();
    let mut pause = settings.startup_initial;
    while let Err(error) = ping(client).await {
        let elapsed = started.elapsed();
        if settings.startup_give_up.is_some_and(|limit| elapsed + pause > limit) {
            let reason = format!("gave up after {}: {error}", seconds(elapsed));
            return Err(ServeError::Redis { address: server.shown.clone(), reason });
        }
        warn!(address = server.shown, %error, "waiting for redis; the ports open when it answers");
        // Up to a tenth less, so that servers that were started together do not ask together.
        sleep(pause.mul_f64(1.0 - 0.1 * fastrand::f64())).await;
        pause = (pause * 2).min(settings.startup_max);
    }
    info!(address = server.shown, "redis answers");
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

async fn ping(client: &Client) -> Result<(), CommandError> {
    let mut batch = Batch::new();
    batch.unit().command("PING", &[]);
    let outcomes = client.send(batch, Instant::now() + PING_TIMEOUT).await;
    outcomes.first().expect("one outcome per command").reply().map(|_| ())
}

/// Sets health by whether Redis answers, until the server drains.
pub(crate) async fn follow(clients: Clients, health: Health, supervisor: Supervisor) {
    let mut ticks = interval(PING_INTERVAL);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = supervisor.drain.cancelled() => return,
        }
        let mut part = Part::Healthy;
        for client in [Some(&clients.main), clients.per_second.as_ref()].into_iter().flatten() {
            if !matches!(timeout(2 * PING_TIMEOUT, ping(client)).await, Ok(Ok(()))) {
                part = Part::Unhealthy;
            }
        }
        health.set_store(part);
    }
}
