//! The real binary: what it prints, how it logs, how it ends.

mod end;
mod log;
mod refusals;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::free_port;

use crate::support::{
    Limits, PATIENCE, Server, ask, await_that, channel, get, post, request, variables,
};

/// A running binary and what it printed at start.
pub(crate) struct Process {
    child: Child,
    pub(crate) banner: String,
    stderr: BufReader<ChildStderr>,
    /// What was read of standard error so far.
    log: String,
}

impl Process {
    pub(crate) fn start(more: &[(&str, &str)]) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_tidegate")), more)
    }

    /// Starts it by a command that becomes the binary.
    pub(crate) fn start_by(command: Command, more: &[(&str, &str)]) -> Self {
        Self::start_in(command, variables(more))
    }

    /// With these variables and no others.
    pub(crate) fn start_in(mut command: Command, variables: Vec<(String, String)>) -> Self {
        let given =
            |name: &str, value: &str| variables.contains(&(name.to_owned(), value.to_owned()));
        let json = given("LOG_FORMAT", "json");
        assert!(
            !json || given("LOG_LEVEL", "info"),
            "in JSON, addresses are read from a line of this level"
        );
        command
            .env_clear()
            .envs(variables)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Ports that the system chose can be taken by others of the tests before the server listens there.
        for _ in 0..5 {
            let mut child = command.spawn().unwrap();
            let stderr = BufReader::new(child.stderr.take().unwrap());
            let mut process = Self {
                child,
                banner: String::new(),
                stderr,
                log: String::new(),
            };
            let started = if json {
                process.read_started()
            } else {
                process.read_banner()
            };
            if started {
                return process;
            }
            assert!(
                process.log.contains("address already in use"),
                "it ended: {}{}",
                process.banner,
                process.log
            );
        }
        panic!("it finds no free port")
    }

    /// Whether it started. If not, it has ended, and all of the log was read.
    fn read_banner(&mut self) -> bool {
        let mut lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        // The last line is a command to try, or says why there is none.
        let last = [
            "  curl",
            "No limits",
            "The configuration",
            "Limits are loaded",
        ];
        while !self
            .banner
            .lines()
            .any(|line| last.iter().any(|start| line.starts_with(start)))
        {
            match lines.next() {
                Some(line) => self.banner += &(line.unwrap() + "\n"),
                None => {
                    self.stderr.read_to_string(&mut self.log).unwrap();
                    return false;
                }
            }
        }
        true
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory now, in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// The id of the user whose rights it has.
    pub(crate) fn effective_user(&self) -> u32 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Uid:"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// The threads of workflows.
    fn threads_of_workflows(&self) -> impl Iterator<Item = std::path::PathBuf> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id()))
            .unwrap()
            .flatten();
        threads.map(|thread| thread.path()).filter(|thread| {
            std::fs::read_to_string(thread.join("comm"))
                .is_ok_and(|name| name.starts_with("workflows"))
        })
    }

    /// Processor time of the threads of workflows so far, in nanoseconds.
    fn times_of_workflows(&self) -> Vec<u64> {
        let time = |thread: std::path::PathBuf| {
            let times = std::fs::read_to_string(thread.join("schedstat")).unwrap();
            times.split(' ').next().unwrap().parse().unwrap()
        };
        self.threads_of_workflows().map(time).collect()
    }

    /// How often the threads of workflows have waited so far.
    pub(crate) fn waits_of_workflows(&self) -> u64 {
        let waits = |thread: std::path::PathBuf| {
            let status = std::fs::read_to_string(thread.join("status")).unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
                .unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        self.threads_of_workflows().map(waits).sum()
    }

    /// In JSON, the log says what a person reads in the banner.
    fn read_started(&mut self) -> bool {
        loop {
            let before = self.log.len();
            if self.stderr.read_line(&mut self.log).unwrap() == 0 {
                return false;
            }
            let line: serde_json::Value = serde_json::from_str(&self.log[before..]).unwrap();
            if line["@message"] == "started" {
                let shown = |what: &str, name: &str| {
                    format!("  {what} {}\n", line[name].as_str().unwrap_or_default())
                };
                self.banner = shown("gRPC", "grpc")
                    + &shown("HTTP", "http")
                    + &shown("debug", "debug")
                    + &shown("API", "api");
                return true;
            }
        }
    }

    pub(crate) fn address(&self, what: &str) -> SocketAddr {
        let line = self
            .banner
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(what));
        line.unwrap_or_else(|| panic!("no {what} in\n{}", self.banner))
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Reads the log until a line has this text.
    pub(crate) fn await_log(&mut self, text: &str) {
        loop {
            let before = self.log.len();
            assert!(
                self.stderr.read_line(&mut self.log).unwrap() > 0,
                "it ended: {}",
                self.log
            );
            if self.log[before..].contains(text) {
                return;
            }
        }
    }

    /// Waits for the end; returns the exit code and the log.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        self.stderr.read_to_string(&mut self.log).unwrap();
        (
            self.child.wait().unwrap().code(),
            std::mem::take(&mut self.log),
        )
    }

    /// What it wrote to standard output after its start, once it has ended.
    pub(crate) fn standard_output(&mut self) -> String {
        let mut text = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already when all is well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_printed_line_uses_up_the_sample() {
    let server = Process::start(&[("RUNTIME_SUBDIRECTORY", "none")]);
    let (_, data) = server.banner.split_once("/json -d '").unwrap();
    let body = data.trim_end().trim_end_matches('\'');
    let statuses: Vec<_> = (0..7)
        .map(|_| post(server.address("HTTP"), "/json", body).status)
        .collect();
    // When the minute ends in between, the count starts anew.
    let passed = statuses.iter().filter(|status| **status == 200).count();
    assert!(
        passed == 5 || (passed == 7 || statuses[0] == 200 && passed > 5),
        "{statuses:?}"
    );
    assert!(
        server.banner.contains("built-in sample") && server.banner.contains("memory"),
        "{}",
        server.banner
    );
    assert_eq!(server.banner.matches("curl").count(), 1);
}

/// The line asked for the sample's domain also when the operator's own configuration was loaded.
#[test]
fn the_printed_line_asks_for_the_first_limit_of_the_configuration() {
    let printed = |text: &str| {
        let limits = Limits::new(text);
        let server = Server::start_bare(&[("RUNTIME_ROOT", limits.root())]);
        let banner = server.started.to_string();
        let body = banner
            .split_once("/json -d '")
            .map(|(_, rest)| rest.trim_end().trim_end_matches('\'').to_owned());
        let statuses = body
            .iter()
            .flat_map(|body| (0..4).map(|_| post(server.http(), "/json", body).status))
            .collect();
        (banner, statuses)
    };
    let (banner, statuses): (String, Vec<u16>) = printed(crate::support::LIMITS);
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"me"}]}]}"#;
    assert!(banner.contains(body), "{banner}");
    assert_eq!(statuses, [200, 200, 200, 429], "{banner}");

    let nested = "{key: plan, value: \"it's\", descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]}";
    let (banner, statuses) = printed(&format!(
        "domain: shop\ndescriptors: [{{key: free}}, {nested}]"
    ));
    assert_eq!(
        banner.matches('\'').count(),
        2,
        "a shell would read another quote: {banner}"
    );
    assert_eq!(statuses, [200, 429, 429, 429], "{banner}");

    let (banner, statuses) = printed("domain: shop\n");
    assert!(
        statuses.is_empty()
            && banner.contains("No limits are loaded. Write them to YAML files in /"),
        "{banner}"
    );
    assert!(banner.contains("/config, or set RUNTIME_ROOT"), "{banner}");

    let (banner, _) = printed("jobs: []\n");
    assert!(
        banner
            .contains("No limits are loaded: the configuration has mistakes; see the error above"),
        "{banner}"
    );
}

/// SIGHUP ended the server.
#[test]
fn a_hangup_loads_the_configuration_again() {
    let limits = Limits::new(crate::support::LIMITS);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root()), ("LOG_LEVEL", "info")]);
    let debug = server.address("debug");
    let loads = |number: u32| {
        await_that("it is loaded", || {
            get(debug, "/stats")
                .body
                .contains(&format!("config_load_success: {number}\n"))
        });
    };
    loads(1);
    server.signal("HUP");
    loads(2);
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));
}

/// Kubernetes sets these for every pod beside a Service named tidegate. They were taken for misspelt settings, and ended the start.
#[test]
fn a_pod_beside_a_service_of_our_name_starts() {
    let service = [
        ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
        ("TIDEGATE_PORT", "tcp://10.0.0.1:8081"),
    ];
    let server = Process::start(&service);
    assert_eq!(get(server.address("HTTP"), "/healthcheck").status, 200);
}

#[test]
fn a_second_server_on_the_same_redis_takes_over_a_port() {
    let redis = crate::workflows::redis();
    let url = redis.address().to_string();
    let port = free_port().to_string();
    let settings = [("REDIS_URL", url.as_str()), ("GRPC_PORT", &port)];
    let (first, second) = (Process::start(&settings), Process::start(&settings));
    assert_eq!(first.address("gRPC"), second.address("gRPC"));
}

pub(crate) fn redis_cli(
    redis: &tidegate_pipeline::test_util::RedisServer,
    command: &[&str],
) -> String {
    let port = redis
        .address()
        .to_string()
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    let output = Command::new("redis-cli")
        .args(["-p", &port])
        .args(command)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Sends the first frame of a client, and waits for that of the server.
pub(super) fn speak_http_2(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    stream.read_exact(&mut [0; 9]).unwrap();
}

/// A pipe among the files kept the thread that reads them, and with it the process, waiting for ever.
#[test]
fn a_pipe_among_the_files_holds_up_neither_start_nor_end() {
    let limits = Limits::new(crate::support::LIMITS);
    assert!(
        Command::new("mkfifo")
            .arg(limits.folder().join("pipe"))
            .status()
            .unwrap()
            .success()
    );
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    assert!(server.banner.contains("shop"), "{}", server.banner);
    server.signal("TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("it is not a regular file"), "{log}");
    assert!(
        log.contains("the limits in what cannot be read are not in use"),
        "{log}"
    );
}

/// One thread served all of the API.
#[test]
fn connections_of_the_api_are_spread_over_the_threads() {
    let process = Process::start(&[
        ("TIDEGATE_CORES", "2"),
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0"),
    ]);
    let api = process.address("API");
    let mut connections = [(); 4].map(|()| TcpStream::connect(api).unwrap());
    for _ in 0..200 {
        for connection in &mut connections {
            connection
                .write_all(b"GET /v1/version HTTP/1.1\r\nhost: test\r\n\r\n")
                .unwrap();
            let (mut answer, mut buffer) = (Vec::new(), [0; 1_024]);
            while !answer.ends_with(b"}") {
                let read = connection.read(&mut buffer).unwrap();
                assert!(read > 0, "the connection was closed");
                answer.extend_from_slice(&buffer[..read]);
            }
        }
    }
    let times = process.times_of_workflows();
    let all: u64 = times.iter().sum();
    assert!(
        times.len() == 2 && times.iter().all(|time| time * 5 > all),
        "{times:?}"
    );
}
