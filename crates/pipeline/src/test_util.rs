//! Real Redis servers for tests: started on a free port, stopped with the handle.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

mod cluster;
#[doc(hidden)]
pub mod fuzzing;
mod sentinel;

pub use cluster::RedisCluster;
pub use sentinel::{MASTER, RedisSentinels};

use crate::{Address, Config};

/// Maximum wait for a server to answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A separate redis-server process, without persistence.
#[derive(Debug)]
pub struct RedisServer {
    process: Child,
    port: u16,
    program: PathBuf,
    arguments: Vec<String>,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server on a free port and waits until it answers.
    ///
    /// # Panics
    /// Panics if redis-server is missing or does not start: a test without its peer must fail.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with more arguments for redis-server, see [`RedisServer::start`].
    ///
    /// # Panics
    /// Panics as [`RedisServer::start`] does.
    pub async fn start_with(arguments: &[&str]) -> Self {
        Self::start_program("redis-server".into(), arguments).await
    }

    /// Starts another program that takes redis-server's arguments, see [`RedisServer::start_with`].
    ///
    /// # Panics
    /// Panics as [`RedisServer::start`] does.
    pub async fn start_program(program: PathBuf, arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|&argument| argument.to_owned())
            .collect();
        tokio::task::spawn_blocking(move || {
            // Another process may take the free port before the server does, hence the attempts.
            for _ in 0..5 {
                let folder = tempfile::tempdir().expect("a temporary directory can be made");
                let port = free_port();
                let process = spawn(&program, port, &arguments, &folder);
                let program = program.clone();
                let arguments = arguments.clone();
                let mut server = Self {
                    process,
                    port,
                    program,
                    arguments,
                    folder,
                };
                if server.wait_until_answering() {
                    return server;
                }
            }
            panic!(
                "{} did not start; its arguments were {arguments:?}",
                program.display()
            )
        })
        .await
        .expect("starting redis-server does not panic but for a missing peer")
    }

    /// Returns the TCP address.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port: self.port,
        }
    }

    /// Returns the path of the Unix socket.
    #[must_use]
    pub fn unix_address(&self) -> Address {
        Address::Unix(self.folder.path().join("redis.sock"))
    }

    /// A configuration for [`RedisServer::address`], with default bounds.
    #[must_use]
    pub fn config(&self) -> Config {
        Config::single(self.address())
    }

    /// The TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills the process at once, as a crash would.
    pub fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts the killed server again on the same port and waits until it answers.
    ///
    /// # Panics
    /// Panics if the server does not start.
    pub async fn restart(&mut self) {
        self.respawn();
        let port = self.port;
        let up = tokio::task::spawn_blocking(move || wait_for(port, || true)).await;
        assert!(
            up.expect("waiting does not panic"),
            "redis-server did not start again on port {port}"
        );
    }

    /// Starts the killed server again on the same port, without waiting.
    pub fn respawn(&mut self) {
        self.process = spawn(&self.program, self.port, &self.arguments, &self.folder);
    }

    /// Stops the process from running; its sockets stay open.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets a paused process run again.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "kill -{name} works on our own process"
        );
    }

    /// Runs inline commands, a line each, on a connection of their own and returns the raw replies.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    #[must_use]
    pub fn raw(&self, command: &str) -> String {
        run_commands(self.port, command).expect("the server answers")
    }

    /// Number of commands that the server has run, with this one.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    #[must_use]
    pub fn commands_processed(&self) -> u64 {
        let stats = self.raw("INFO stats");
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_commands_processed:"));
        let count = line.and_then(|count| count.trim().parse().ok());
        count.expect("the statistics have the number")
    }

    /// Records every command the server runs from here on.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server accepts");
        stream
            .set_read_timeout(Some(START_TIMEOUT))
            .expect("a timeout can be set");
        stream.write_all(b"MONITOR\r\n").expect("the server reads");
        let mut monitor = Monitor {
            stream,
            text: String::new(),
        };
        monitor.read_until("+OK\r\n");
        monitor.text.clear();
        monitor
    }

    fn wait_until_answering(&mut self) -> bool {
        let process = &mut self.process;
        wait_for(self.port, || matches!(process.try_wait(), Ok(None)))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The commands a server runs, as MONITOR prints them.
#[derive(Debug)]
pub struct Monitor {
    stream: TcpStream,
    text: String,
}

impl Monitor {
    /// The commands since the start, each as `"INCRBY" "key" "1"`, up to and without the one that
    /// contains `last`.
    ///
    /// # Panics
    /// Panics if no such command comes.
    #[must_use]
    pub fn commands_until(mut self, last: &str) -> Vec<String> {
        self.read_until(last);
        let commands = self
            .text
            .lines()
            .filter_map(|line| Some(line.split_once("] ")?.1.to_owned()));
        commands
            .take_while(|command| !command.contains(last))
            .collect()
    }

    fn read_until(&mut self, end: &str) {
        let mut buffer = [0; 4096];
        while !self.text.contains(end) {
            let read = self
                .stream
                .read(&mut buffer)
                .expect("the server answers MONITOR");
            assert!(
                read > 0,
                "the server closed MONITOR before {end:?}; so far:\n{}",
                self.text
            );
            self.text
                .push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    }
}

/// The valkey-server that `make test` installs, or the one that TIDEGATE_TEST_VALKEY names.
///
/// # Panics
/// Panics if it is missing: a test without its peer must fail.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the place of a test's peer is no setting of the server"
)]
pub fn valkey_program() -> PathBuf {
    let program = match std::env::var_os("TIDEGATE_TEST_VALKEY") {
        Some(program) => PathBuf::from(program),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/valkey-server"),
    };
    assert!(
        program.exists(),
        "there is no Valkey at {}; `make test` installs it",
        program.display()
    );
    program
}

/// Returns a port where no server listens now.
///
/// # Panics
/// Panics if no port can be bound on loopback.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    listener
        .local_addr()
        .expect("a bound socket has an address")
        .port()
}

fn spawn(program: &Path, port: u16, arguments: &[String], folder: &TempDir) -> Child {
    let socket: PathBuf = folder.path().join("redis.sock");
    Command::new(program)
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ])
        .args([
            "--daemonize",
            "no",
            "--loglevel",
            "warning",
            "--enable-debug-command",
            "local",
        ])
        .arg("--dir")
        .arg(folder.path())
        .arg("--unixsocket")
        .arg(socket)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "{} cannot be started ({error}); `make test` installs it",
                program.display()
            )
        })
}

/// Waits until a condition holds. Returns false if it does not in time.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    false
}

fn wait_for(port: u16, mut alive: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline && alive() {
        // Any answer is enough: a server with a password refuses PING, and is up.
        if run_commands(port, "PING").is_ok() {
            return true;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    false
}

/// Answer of a sentinel to QUIT.
const NO_QUIT: &str = "-ERR unknown command 'QUIT'";

/// Sends inline commands and returns their raw replies in sequence.
fn run_commands(port: u16, commands: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    stream.write_all(format!("{commands}\r\nQUIT\r\n").as_bytes())?;
    let mut replies = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer)?;
        replies.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&replies);
        if let Some((answered, _)) = text.split_once(NO_QUIT) {
            return Ok(answered.to_owned());
        }
        if read == 0 {
            let answered = text
                .strip_suffix("+OK\r\n")
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            return Ok(answered.to_owned());
        }
    }
}
