//! The default port of the API, when another process has it at the start: workflows begin as soon as it is free.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{error, info, warn};

use super::Workflows;
use super::units::Limits;
use crate::edge::bounds::Most;
use crate::edge::listen;
use crate::edge::tls::Gate;
use crate::operate::health::Health;
use crate::operate::metrics::Metrics;
use crate::operate::traces::Traces;
use crate::settings::Settings;
use crate::supervise::Supervisor;

/// The wait between two attempts.
const LOOK: Duration = Duration::from_secs(1);

/// Workflows that wait for their port.
#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) settings: Settings,
    pub(crate) health: Health,
    pub(crate) supervisor: Supervisor,
    pub(crate) metrics: Arc<Metrics>,
    /// The thread, if it was started before the port was taken.
    pub(crate) started: Option<Workflows>,
    /// The way through TLS, if there is one.
    pub(crate) gate: Option<Gate>,
    /// How many connections the API may have.
    pub(crate) connections: Most,
    /// What workflows have of the rate limits.
    pub(crate) limits: Limits,
    /// None: nothing of workflows is traced.
    pub(crate) traces: Option<Traces>,
}

impl Late {
    /// Waits for the port, serves the API on it, and returns when the server drains.
    pub(crate) async fn run(self) {
        let drain = self.supervisor.drain.clone();
        tokio::select! {
            () = self.begin() => drain.cancelled().await,
            () = drain.cancelled() => {}
        }
    }

    async fn begin(self) {
        let listener = self.once_free().await;
        let Self {
            settings,
            health,
            supervisor,
            metrics,
            started,
            gate,
            connections,
            limits,
            traces,
        } = self;
        let workflows = match (started, &settings.workflows) {
            (Some(workflows), _) => workflows,
            (None, Some(own)) => {
                match Workflows::start(
                    own,
                    (&health, &metrics, traces.as_ref()),
                    limits,
                    &supervisor,
                )
                .await
                {
                    Ok(workflows) => workflows,
                    Err(error) => return error!(%error, "workflows stay off"),
                }
            }
            (None, None) => return,
        };
        metrics.watch_workflows(workflows.activity.clone());
        metrics.watch_port(workflows.open(listener, gate, connections));
        info!(
            store = workflows.store,
            "the port of the API is free: workflows are on"
        );
    }

    async fn once_free(&self) -> TcpListener {
        let mut reported = String::new();
        loop {
            sleep(LOOK).await;
            match listen::api(&self.settings) {
                Ok(Some(listener)) => return listener,
                Ok(None) => {}
                Err(failure) => {
                    let reason = failure.to_string();
                    if reported != reason {
                        warn!("workflows are still off: {reason}");
                        reported = reason;
                    }
                }
            }
        }
    }
}
