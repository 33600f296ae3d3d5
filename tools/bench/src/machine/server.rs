//! A rate limit server, started for a measurement.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::machine::address::Address;
use crate::machine::process::Process;

/// Limits of requests: one that is never reached, for costs, and one whose counters expire after a
/// second, for memory.
const CONFIGURATION: &str = "\
domain: bench
descriptors:
  - key: key
    rate_limit: { unit: hour, requests_per_unit: 4294967295 }
  - key: second
    rate_limit: { unit: second, requests_per_unit: 4294967295 }
";

/// Limits of jobs: one that is never reached, and one that is used up by one job.
const JOB_LIMITS: &str = "\
domain: jobs
descriptors:
  - key: open
    rate_limit: { unit: hour, requests_per_unit: 4294967295 }
  - key: daily
    rate_limit: { unit: day, requests_per_unit: 1 }
";

/// Maximum wait for the gRPC port to open.
const START: Duration = Duration::from_secs(20);

/// A running server. Dropping it kills the process.
pub(crate) struct Server {
    child: Child,
    port: u16,
    debug: u16,
    api: u16,
}

impl Server {
    /// Starts a server with the bench configuration under `folder` and more settings, and waits
    /// until it accepts connections.
    pub(crate) async fn start(
        program: &Path,
        folder: &Path,
        environment: &[(&str, String)],
    ) -> Result<Self> {
        let configuration = folder.join("bench/config");
        std::fs::create_dir_all(&configuration)
            .context("could not make the configuration folder")?;
        for (name, text) in [("bench.yaml", CONFIGURATION), ("jobs.yaml", JOB_LIMITS)] {
            std::fs::write(configuration.join(name), text)
                .context("could not write the configuration")?;
        }
        let [port, http, debug, api] = free_ports()?;
        let settings = [
            ("RUNTIME_ROOT", folder.display().to_string()),
            ("RUNTIME_SUBDIRECTORY", "bench".to_owned()),
            ("GRPC_HOST", "127.0.0.1".to_owned()),
            ("GRPC_PORT", port.to_string()),
            ("DEBUG_HOST", "127.0.0.1".to_owned()),
            ("DEBUG_PORT", debug.to_string()),
            ("HOST", "127.0.0.1".to_owned()),
            ("PORT", http.to_string()),
            // The reference sends its statistics to statsd, or logs them, unless told not to.
            ("DISABLE_STATS", "true".to_owned()),
            ("LOG_LEVEL", "error".to_owned()),
            ("TIDEGATE_HTTP_ADDR", format!("127.0.0.1:{api}")),
            // Compared servers run at the same time, so each has a separate file.
            (
                "TIDEGATE_DATA_DIR",
                format!("{}/data-{port}", folder.display()),
            ),
        ];
        let mut command = Command::new(program);
        command.env_clear().current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.envs(
            settings
                .iter()
                .chain(environment)
                .map(|(name, value)| (*name, value)),
        );
        let child = command
            .spawn()
            .with_context(|| format!("could not start {}", program.display()))?;
        let mut server = Self {
            child,
            port,
            debug,
            api,
        };
        server.wait_until_open().await?;
        Ok(server)
    }

    pub(crate) fn process(&self) -> Process {
        Process(self.child.id())
    }

    pub(crate) fn grpc(&self) -> Address {
        Address::Tcp {
            host: "127.0.0.1".into(),
            port: self.port,
        }
    }

    /// Returns the address of `/metrics`.
    pub(crate) fn debug(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.debug).into()
    }

    /// Returns the address of the HTTP API.
    pub(crate) fn api(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.api).into()
    }

    async fn wait_until_open(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START {
            if TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended at once: {status}");
            }
            sleep(Duration::from_millis(20)).await;
        }
        bail!("the server did not open its gRPC port within {START:?}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The measurement is over, so errors have no effect: the process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns free ports. All are held until the last is known, so that they differ.
fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let mut held = Vec::new();
    let mut ports = [0; COUNT];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
