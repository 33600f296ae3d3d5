//! Load of a demo: workers, workflows and gateway calls, all through the public ports of a server.

mod graphs;
mod traffic;
mod worker;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use crate::client::address::ServerAddress;
use crate::client::api_client::{ApiClient, ApiRequest, Token};
use crate::output::exit::{CommandResult, Details, Failure, print_failure};

/// Number of workers, each with one job at a time.
const WORKERS: usize = 12;
/// Wait after a call that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The workers and callers of a demo.
#[derive(Debug)]
pub struct Demo {
    api: Arc<ApiClient>,
    gateway: ApiClient,
}

impl Demo {
    /// `api` is the port of the API, and `http` the one that answers `/json`. Both speak plaintext,
    /// without tokens.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn new(api: SocketAddr, http: SocketAddr) -> CommandResult<Self> {
        let remote = |address| ApiClient::new(target(address)?, Token::default(), None);
        Ok(Self {
            api: Arc::new(remote(api)?),
            gateway: remote(http)?,
        })
    }

    /// Runs until the future is dropped. A failed call is repeated after a second.
    pub async fn run(self) {
        let mut parts = tokio::task::JoinSet::new();
        for worker in 0..WORKERS {
            let api = self.api.clone();
            parts.spawn(async move { worker::run(&api, &format!("demo-{}", worker + 1)).await });
        }
        for kind in graphs::workflow_kinds() {
            let api = self.api.clone();
            parts.spawn(async move { create(&api, kind).await });
        }
        let pause = traffic::pause_of_a_user().to_string();
        // Without it the demo shows less, and nothing else of it depends on it.
        let _ = self
            .api
            .text(&ApiRequest::put("/v1/limits/overrides", pause))
            .await;
        traffic::run(&self.gateway).await;
    }
}

/// Creates one kind of workflow at a fixed interval.
async fn create(api: &ApiClient, kind: graphs::WorkflowKind) {
    // Short intervals begin first, so that the first workflow ends within seconds.
    sleep(kind.interval / 10).await;
    for number in 1.. {
        let api_request = ApiRequest::post("/v1/workflows", (kind.definition)(number).to_string());
        let wait = match api.text(&api_request).await {
            Ok(_) => kind.interval,
            Err(failure) => {
                // The server refused a definition, which is a mistake in the demo: the message
                // helps to find it.
                print_failure(&failure, Details::All);
                RETRY_PAUSE
            }
        };
        sleep(wait).await;
    }
}

/// Returns the text of the answer, or `None` if the call failed or was refused.
async fn post(remote: &ApiClient, path: &str, body: &Value) -> Option<String> {
    remote
        .text(&ApiRequest::post(path, body.to_string()))
        .await
        .ok()
}

/// The base address for a client on this machine.
fn target(mut address: SocketAddr) -> CommandResult<ServerAddress> {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    ServerAddress::parse(&format!("http://{address}")).map_err(Failure::usage)
}
