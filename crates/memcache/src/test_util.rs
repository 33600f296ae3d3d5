//! Real memcached servers for tests: started on a free port, stopped with the handle.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_pipeline::Address;

/// Maximum wait for a server to answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A separate memcached process.
#[derive(Debug)]
pub struct MemcachedServer {
    process: Child,
    port: u16,
    arguments: Vec<String>,
}

impl MemcachedServer {
    /// Starts a server on a free port and waits until it listens.
    ///
    /// # Panics
    /// Panics if memcached is missing or does not start: a test without its peer must fail.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more arguments for memcached, see [`MemcachedServer::start`].
    ///
    /// # Panics
    /// Panics as [`MemcachedServer::start`] does.
    #[must_use]
    pub fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|&argument| argument.to_owned())
            .collect();
        // Another process may take the free port before the server does, hence the attempts.
        for _ in 0..5 {
            let port = free_port();
            let process = spawn(port, &arguments);
            let mut server = Self {
                process,
                port,
                arguments: arguments.clone(),
            };
            if server.wait_until_listening() {
                return server;
            }
        }
        panic!("memcached did not start; its arguments were {arguments:?}")
    }

    /// Returns the address of the server.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port: self.port,
        }
    }

    /// The TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the process at once, as a crash would.
    pub fn kill(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts the killed server again on the same port, empty, and waits until it listens.
    ///
    /// # Panics
    /// Panics if the server does not start.
    pub fn restart(&mut self) {
        self.process = spawn(self.port, &self.arguments);
        assert!(
            self.wait_until_listening(),
            "memcached did not start again on port {}",
            self.port
        );
    }

    /// Stops the process from running; its sockets stay open.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets a paused process run again.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Sends a command on a connection of its own, and returns the reply up to this end.
    ///
    /// # Panics
    /// Panics if the server gives another answer.
    #[must_use]
    pub fn raw(&self, command: &str, end: &str) -> String {
        let ask = || -> io::Result<String> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(START_TIMEOUT))?;
            stream.write_all(format!("{command}\r\n").as_bytes())?;
            let mut text = String::new();
            let mut buffer = [0; 4096];
            while !text.ends_with(end) && !text.starts_with("BUSY") {
                match stream.read(&mut buffer)? {
                    0 => {
                        return Err(io::Error::other(format!(
                            "it closed the connection after {text:?}"
                        )));
                    }
                    read => text.push_str(&String::from_utf8_lossy(&buffer[..read])),
                }
            }
            Ok(text)
        };
        ask().expect("the server answers")
    }

    /// The value of a key.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<String> {
        let reply = self.raw(&format!("get {key}"), "END\r\n");
        reply
            .lines()
            .nth(1)
            .filter(|_| reply.starts_with("VALUE"))
            .map(str::to_owned)
    }

    /// Sets a value that stays.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    pub fn set(&self, key: &str, value: &str) {
        let command = format!("set {key} 0 0 {}\r\n{value}", value.len());
        assert_eq!(self.raw(&command, "\r\n"), "STORED\r\n");
    }

    /// All keys with when they expire, in seconds since the Unix epoch, sorted.
    ///
    /// # Panics
    /// Panics if the server does not answer.
    #[must_use]
    pub fn keys(&self) -> Vec<(String, i64)> {
        let reply = loop {
            let reply = self.raw("lru_crawler metadump all", "END\r\n");
            // The server scans its keys now and then, and lists none of them during a scan.
            if !reply.starts_with("BUSY") {
                break reply;
            }
            pause();
        };
        let word = |line: &str, name: &str| {
            let word = line
                .split(' ')
                .find_map(|word| word.strip_prefix(name))
                .unwrap_or_default();
            word.replace("%2F", "/")
                .replace("%3A", ":")
                .replace("%2A", "*")
        };
        let mut keys: Vec<_> = reply
            .lines()
            .filter(|line| line.starts_with("key="))
            .map(|line| {
                (
                    word(line, "key="),
                    word(line, "exp=").parse().expect("a time"),
                )
            })
            .collect();
        keys.sort();
        keys
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.process.id().to_string()])
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "kill -{name} works on our own process"
        );
    }

    fn wait_until_listening(&mut self) -> bool {
        let started = Instant::now();
        while started.elapsed() < START_TIMEOUT && matches!(self.process.try_wait(), Ok(None)) {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return matches!(self.process.try_wait(), Ok(None));
            }
            pause();
        }
        self.kill();
        false
    }
}

impl Drop for MemcachedServer {
    fn drop(&mut self) {
        self.kill();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a process of others is waited for, on a thread of a test"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

fn spawn(port: u16, arguments: &[String]) -> Child {
    Command::new("memcached")
        // Root must say that it means it; others may not change who they are, and are not asked to.
        .args([
            "-l",
            "127.0.0.1",
            "-U",
            "0",
            "-t",
            "2",
            "-m",
            "64",
            "-u",
            "root",
            "-p",
            &port.to_string(),
        ])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("memcached is installed: scripts/deps test")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener
        .local_addr()
        .expect("a bound socket has an address")
        .port()
}
