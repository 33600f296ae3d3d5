//! Real sentinels for tests.

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{RedisServer, ask, free_port, wait_for};
use crate::Address;

/// A primary with one replica, and three sentinels that watch them as `tidegate`.
#[derive(Debug)]
pub struct RedisSentinels {
    servers: [RedisServer; 2],
    sentinels: Vec<Sentinel>,
}

#[derive(Debug)]
struct Sentinel {
    process: Child,
    port: u16,
    _folder: TempDir,
}

/// The primary's name.
pub const MASTER: &str = "tidegate";

impl RedisSentinels {
    /// Starts all five servers and waits until the replica is in step and the sentinels know it and
    /// each other. A primary that is silent for half a second counts as down. The sentinels require
    /// `password` if it is not empty.
    ///
    /// # Panics
    /// Panics as [`RedisServer::start`] does, and if the sentinels do not find each other.
    pub async fn start(password: &'static str) -> Self {
        let primary = RedisServer::start().await;
        let replica =
            RedisServer::start_with(&["--replicaof", "127.0.0.1", &primary.port().to_string()])
                .await;
        tokio::task::spawn_blocking(move || {
            let sentinels = (0..3)
                .map(|_| Sentinel::start(primary.port(), password))
                .collect();
            let all = Self {
                servers: [primary, replica],
                sentinels,
            };
            let auth = if password.is_empty() {
                String::new()
            } else {
                format!("AUTH {password}\r\n")
            };
            for sentinel in &all.sentinels {
                let ready = || {
                    let info =
                        ask(sentinel.port, &format!("{auth}INFO sentinel")).unwrap_or_default();
                    info.contains("status=ok") && info.contains("slaves=1,sentinels=3")
                };
                assert!(super::until(ready), "the sentinels did not find each other");
            }
            assert!(super::until(|| all.servers[1]
                .raw("INFO replication")
                .contains("master_link_status:up")));
            all
        })
        .await
        .expect("the sentinels start")
    }

    /// Returns the servers: first the initial primary.
    #[must_use]
    pub fn server_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.servers[index]
    }

    /// Addresses of the sentinels.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        let address = |sentinel: &Sentinel| Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port: sentinel.port,
        };
        self.sentinels.iter().map(address).collect()
    }

    /// Stops one sentinel.
    pub fn kill_sentinel(&mut self, index: usize) {
        self.sentinels.remove(index);
    }
}

impl Sentinel {
    fn start(primary: u16, password: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let port = free_port();
        let mut lines = vec![
            format!("port {port}"),
            format!("dir {}", folder.path().display()),
            format!("sentinel monitor {MASTER} 127.0.0.1 {primary} 2"),
            format!("sentinel down-after-milliseconds {MASTER} 500"),
            format!("sentinel failover-timeout {MASTER} 2000"),
        ];
        if !password.is_empty() {
            lines.push(format!("requirepass {password}"));
            lines.push(format!("sentinel sentinel-pass {password}"));
        }
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, lines.join("\n")).expect("a temporary file can be written");
        let process = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server started a moment ago");
        // The handle exists before the wait, so that a panic ends the process.
        let mut sentinel = Self {
            process,
            port,
            _folder: folder,
        };
        let process = &mut sentinel.process;
        assert!(
            wait_for(port, || matches!(process.try_wait(), Ok(None))),
            "the sentinel did not start"
        );
        sentinel
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
