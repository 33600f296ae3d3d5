//! A rate limit server, started for a measurement.

use std::fs;
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
const START_TIMEOUT: Duration = Duration::from_secs(20);

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
        write_limits(folder)?;
        let ports = free_ports()?;
        let [port, _, debug, api] = ports;
        let mut command = Command::new(program);
        command.env_clear().current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.envs(settings(folder, ports));
        command.envs(environment.iter().cloned());
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
        while start.elapsed() < START_TIMEOUT {
            if TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended at once: {status}");
            }
            sleep(Duration::from_millis(20)).await;
        }
        bail!("the server did not open its gRPC port within {START_TIMEOUT:?}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The measurement is over, so errors have no effect: the process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the limits of requests and jobs into the folder of a server.
fn write_limits(folder: &Path) -> Result<()> {
    let folder = folder.join("bench/config");
    fs::create_dir_all(&folder).context("could not make the configuration folder")?;
    for (name, text) in [("bench.yaml", CONFIGURATION), ("jobs.yaml", JOB_LIMITS)] {
        fs::write(folder.join(name), text).context("could not write the configuration")?;
    }
    Ok(())
}

/// Returns the settings of a server. The ports are those of gRPC, HTTP, `/metrics` and the API.
fn settings(folder: &Path, ports: [u16; 4]) -> [(&'static str, String); 12] {
    let [port, http, debug, api] = ports;
    let folder = folder.display();
    [
        ("RUNTIME_ROOT", folder.to_string()),
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
        ("TIDEGATE_DATA_DIR", format!("{folder}/data-{port}")),
    ]
}

/// Returns free ports. All are held until the last is known, so that they differ.
fn free_ports() -> Result<[u16; 4]> {
    let mut held = Vec::new();
    let mut ports = [0; 4];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
