//! A rate limit server, started for a measurement.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tidegate_pipeline::Address;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{Process, tcp_address};

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
    grpc: SocketAddr,
    /// The address of `/metrics`.
    pub(crate) debug: SocketAddr,
    /// The address of the HTTP API.
    pub(crate) api: SocketAddr,
    _folder: TempDir,
}

impl Server {
    /// Starts a server with the bench configuration in a new folder and more settings, and waits
    /// until it accepts connections.
    pub(crate) async fn start(program: &Path, environment: &[(&str, String)]) -> Result<Self> {
        let folder = tempfile::tempdir().context("could not make a temporary folder")?;
        write_limits(folder.path())?;
        let [grpc, http, debug, api] = free_addresses()?;
        let child = command(program, folder.path())
            .env("GRPC_PORT", grpc.port().to_string())
            .env("DEBUG_PORT", debug.port().to_string())
            .env("PORT", http.port().to_string())
            .env("TIDEGATE_HTTP_ADDR", api.to_string())
            .envs(environment.iter().cloned())
            .spawn()
            .with_context(|| format!("could not start {}", program.display()))?;
        let mut server = Self {
            child,
            grpc,
            debug,
            api,
            _folder: folder,
        };
        server.wait_until_open().await?;
        Ok(server)
    }

    pub(crate) fn process(&self) -> Process {
        Process(self.child.id())
    }

    pub(crate) fn grpc(&self) -> Address {
        tcp_address(self.grpc)
    }

    async fn wait_until_open(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < START_TIMEOUT {
            if TcpStream::connect(self.grpc).await.is_ok() {
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

/// Returns the command of a server with the bench configuration in `folder`.
fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .env_clear()
        .env("RUNTIME_ROOT", folder)
        .env("RUNTIME_SUBDIRECTORY", "bench")
        .env("GRPC_HOST", "127.0.0.1")
        .env("DEBUG_HOST", "127.0.0.1")
        .env("HOST", "127.0.0.1")
        // The reference sends its statistics to statsd, or logs them, unless told not to.
        .env("DISABLE_STATS", "true")
        .env("LOG_LEVEL", "error")
        .env("TIDEGATE_DATA_DIR", folder.join("data"));
    command
}

/// Returns free addresses. All are held until the last is known, so that they differ.
fn free_addresses() -> Result<[SocketAddr; 4]> {
    let mut held = Vec::new();
    let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); 4];
    for address in &mut addresses {
        let listener = TcpListener::bind(*address).context("no free port")?;
        *address = listener.local_addr()?;
        held.push(listener);
    }
    Ok(addresses)
}
