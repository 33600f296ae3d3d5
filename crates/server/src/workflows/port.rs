//! Waits for the default port of the API if another process uses it at the start: workflows start
//! when it is free.

use std::net::TcpListener;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{error, info, warn};

use super::{ServerContext, Workflows};
use crate::net::bounds::ConnectionLimit;
use crate::net::listen;
use crate::net::tls::PortTlsAcceptor;
use crate::settings::Settings;

/// Interval between two attempts to bind the port.
const BIND_INTERVAL: Duration = Duration::from_secs(1);

/// Workflows that wait for their port.
pub(crate) struct PendingPort {
    pub(crate) settings: Settings,
    pub(crate) context: ServerContext,
    /// The threads, if they were started before the port was taken.
    pub(crate) started: Option<Workflows>,
    /// TLS acceptor of the port, if it is encrypted.
    pub(crate) acceptor: Option<PortTlsAcceptor>,
    /// Limit of connections to the API.
    pub(crate) connections: ConnectionLimit,
}

impl PendingPort {
    /// Waits for the port, serves the API on it, and returns when the server drains.
    pub(crate) async fn run(self) {
        let drain = self.context.supervisor.drain.clone();
        tokio::select! {
            () = self.begin() => drain.cancelled().await,
            () = drain.cancelled() => {}
        }
    }

    async fn begin(self) {
        let listener = self.wait_until_free().await;
        let Self {
            settings,
            context,
            started,
            acceptor,
            connections,
        } = self;
        let metrics = context.metrics.clone();
        let workflows = match (started, &settings.workflows) {
            (Some(workflows), _) => workflows,
            (None, Some(own)) => match Workflows::start(own, context).await {
                Ok(workflows) => workflows,
                Err(error) => return error!(%error, "workflows stay off"),
            },
            (None, None) => return,
        };
        metrics.watch_workflows(workflows.activity.clone());
        metrics.watch_port(workflows.open(listener, acceptor, connections));
        info!(
            store = workflows.store,
            "the port of the API is free: workflows are on"
        );
    }

    async fn wait_until_free(&self) -> TcpListener {
        let mut reported = String::new();
        loop {
            sleep(BIND_INTERVAL).await;
            match listen::listen_api(&self.settings) {
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
