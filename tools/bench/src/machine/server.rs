//! A rate limit server, started for a measurement.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::machine::address::Address;
use crate::machine::process::Process;

/// A limit that is never reached, for costs, and one whose counters are gone after a second, for memory.
const CONFIGURATION: &str = "\
domain: bench
descriptors:
  - key: key
    rate_limit: { unit: hour, requests_per_unit: 4294967295 }
  - key: second
    rate_limit: { unit: second, requests_per_unit: 4294967295 }
";

/// Limits of jobs: one that is never reached, one without room, and such as are soon used up.
const OF_JOBS: &str = "\
domain: jobs
descriptors:
  - key: open
    rate_limit: { unit: hour, requests_per_unit: 4294967295 }
  - key: closed
    rate_limit: { unit: hour, requests_per_unit: 0 }
  - key: daily
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: secondly
    rate_limit: { unit: second, requests_per_unit: 1 }
";

/// Longest wait for the gRPC port to open.
const START: Duration = Duration::from_secs(20);

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    port: u16,
    http: u16,
    debug: u16,
    api: u16,
}

impl Server {
    /// Starts a server with the bench configuration under `folder` and more settings, and waits until it accepts
    /// connections.
    pub(crate) async fn start(
        program: &Path,
        folder: &Path,
        environment: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let configuration = folder.join("bench/config");
        std::fs::create_dir_all(&configuration)
            .context("could not make the configuration folder")?;
        std::fs::write(configuration.join("bench.yaml"), CONFIGURATION)
            .context("could not write the configuration")?;
        let [port, http, debug, api] = free_ports()?;
        let mut command = Command::new(program);
        command
            .env_clear()
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        std::fs::write(configuration.join("jobs.yaml"), OF_JOBS)
            .context("could not write the configuration")?;
        command
            .env("RUNTIME_ROOT", folder)
            .env("RUNTIME_SUBDIRECTORY", "bench");
        for (name, port) in [("GRPC", port), ("DEBUG", debug)] {
            command
                .env(format!("{name}_HOST"), "127.0.0.1")
                .env(format!("{name}_PORT"), port.to_string());
        }
        command
            .env("HOST", "127.0.0.1")
            .env("PORT", http.to_string());
        // The reference sends its statistics to statsd, or logs them, unless told not to.
        command
            .env("DISABLE_STATS", "true")
            .env("LOG_LEVEL", "error");
        // Servers that are compared run at the same time, and each has a file of its own.
        command.env("TIDEGATE_HTTP_ADDR", format!("127.0.0.1:{api}"));
        command.env("TIDEGATE_DATA_DIR", folder.join(format!("data-{port}")));
        command.envs(environment.iter().map(|(name, value)| (*name, value)));
        let child = command
            .spawn()
            .with_context(|| format!("could not start {}", program.display()))?;
        let mut server = Self {
            child,
            port,
            http,
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

    /// Where `/json` is.
    pub(crate) fn http(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.http).into()
    }

    /// Where `/stats` is.
    pub(crate) fn debug(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.debug).into()
    }

    /// Where the HTTP API listens.
    pub(crate) fn api(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.api).into()
    }

    async fn wait_until_open(&mut self) -> anyhow::Result<()> {
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
        // Its figures are taken; there is nothing to save, and no one to tell if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The absolute path of a server's program, because the server runs in a folder of its own.
pub(crate) fn find(program: &Path) -> anyhow::Result<PathBuf> {
    let missing = || {
        format!(
            "there is no server at {}; `make bench` builds it",
            program.display()
        )
    };
    program.canonicalize().with_context(missing)
}

/// Ports that are free. All are held until the last is known, so that they differ.
fn free_ports<const COUNT: usize>() -> anyhow::Result<[u16; COUNT]> {
    let mut held = Vec::new();
    let mut ports = [0; COUNT];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}
