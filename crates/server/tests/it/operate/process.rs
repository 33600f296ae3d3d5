//! The real binary: what it prints, how it logs, how it ends.

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

#[test]
fn every_signal_to_end_ends_it_with_code_0() {
    for signal in ["TERM", "INT"] {
        let server = Process::start(&[("LOG_LEVEL", "info")]);
        server.signal(signal);
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{signal}: {log}");
        assert!(log.contains("stopped"), "{log}");
    }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_in_flight_are_finished_and_new_connections_refused() {
    let redis = tidegate_pipeline::test_util::RedisServer::start().await;
    let limits = Limits::new(crate::support::LIMITS);
    let server = Process::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("REDIS_URL", &redis.address().to_string()),
        ("TIDEGATE_CALL_TIMEOUT", "10s"),
    ]);
    let grpc = server.address("gRPC");
    let channel = channel(grpc).await;
    ask(&channel, request("shop", &[&[("named", "x")]]))
        .await
        .unwrap();
    redis.pause();
    let call =
        tokio::spawn(async move { ask(&channel, request("shop", &[&[("named", "x")]])).await });
    tokio::task::yield_now().await;
    let debug = server.address("debug");
    // The call is in flight once its commands are written.
    let written = || {
        let stats = get(debug, "/stats").body;
        let value = |name: &str| -> u64 {
            stats
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                .unwrap()
                .parse()
                .unwrap()
        };
        value("tidegate.redis.commands") > value("tidegate.redis.replies")
    };
    let until = Instant::now() + PATIENCE;
    while !written() {
        assert!(Instant::now() < until, "the call is never in flight");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.signal("TERM");
    tokio::task::spawn_blocking(move || {
        await_that("new connections are refused", || {
            TcpStream::connect(grpc).is_err()
        })
    })
    .await
    .unwrap();
    redis.resume();
    assert_eq!(call.await.unwrap().unwrap().statuses[0].limit_remaining, 98);
    assert_eq!(
        tokio::task::spawn_blocking(|| server.end())
            .await
            .unwrap()
            .0,
        Some(0)
    );
}

#[test]
fn connections_without_a_request_do_not_hold_up_the_end() {
    let server = Process::start(&[]);
    let open =
        ["HTTP", "gRPC", "debug"].map(|what| TcpStream::connect(server.address(what)).unwrap());
    // Answered on a later connection, so the earlier ones are accepted.
    get(server.address("HTTP"), "/healthcheck");
    let asked = Instant::now();
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "the drain timeout is 10 s"
    );
    drop(open);
}

#[test]
fn the_drain_timeout_bounds_the_end() {
    let server = Process::start(&[("TIDEGATE_DRAIN_TIMEOUT", "100ms")]);
    // A request that never ends.
    let mut open = TcpStream::connect(server.address("HTTP")).unwrap();
    std::io::Write::write_all(
        &mut open,
        b"POST /json HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n{",
    )
    .unwrap();
    let asked = Instant::now();
    server.signal("TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(asked.elapsed() < Duration::from_secs(5), "{log}");
}

#[test]
fn a_bad_reload_names_file_line_and_column() {
    let limits = Limits::new("domain: shop\n");
    let server = Process::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("LOG_FORMAT", "json"),
        ("LOG_LEVEL", "info"),
    ]);
    limits.write(
        "limits.yaml",
        "domain: shop\ndescriptors:\n  - key: a\n    rate_limit: {unit: foo}\n",
    );
    let counted = || {
        get(server.address("debug"), "/stats")
            .body
            .contains("config_load_error: 1\n")
    };
    await_that("the bad file is noticed", counted);
    server.signal("TERM");
    let (_, log) = server.end();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let error = lines.iter().find(|line| line["level"] == "error").unwrap();
    let message = error["@message"].as_str().unwrap();
    let expected =
        "Error loading new configuration: config.limits.yaml:4:24: invalid rate limit unit 'foo'";
    assert!(message.starts_with(expected), "{message}");
    assert!(
        error["@timestamp"].as_str().unwrap().ends_with('Z'),
        "{error}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line["level"] == "info" && line["@message"] == "loaded configuration"),
        "{log}"
    );
}

#[test]
fn it_does_not_start_without_what_it_was_told_to_use() {
    let fails = |more: &[(&str, &str)], reason: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.env_clear().envs(variables(more)).output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert!(log.contains(reason), "{log}");
        assert!(!log.contains("hunter2"), "{log}");
    };
    fails(
        &[("RUNTIME_ROOT", "/nowhere/at/all")],
        "RUNTIME_ROOT /nowhere/at/all does not exist",
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    fails(
        &[("PORT", &port)],
        "the HTTP listener cannot bind 127.0.0.1",
    );
    let url = format!("redis://u:hunter2@127.0.0.1:{}", free_port());
    let short = ("REDIS_STARTUP_MAX_ELAPSED_TIME", "100ms");
    let first = ("REDIS_STARTUP_INITIAL_INTERVAL", "10ms");
    fails(
        &[("REDIS_URL", &url), short, first],
        "timed out waiting for Redis connection to 127.0.0.1:",
    );
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

/// Limits count in the memory of each process: two processes on one port would double every limit, silently.
#[test]
fn a_second_server_without_redis_does_not_share_a_port() {
    let first = Process::start(&[]);
    for (name, what) in [("GRPC_PORT", "gRPC"), ("PORT", "HTTP")] {
        let port = first.address(what).port().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command
            .env_clear()
            .envs(variables(&[(name, &port)]))
            .output()
            .unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert!(
            log.contains(&format!("the {what} listener cannot bind")) && log.contains("REDIS_URL"),
            "{log}"
        );
    }
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

/// A wrong password was "unavailable" for ever.
#[test]
fn a_refused_password_is_told_with_the_variable_to_look_at() {
    let redis = crate::workflows::redis();
    redis_cli(
        &redis,
        &[
            "ACL", "SETUSER", "gate", "on", ">right", "~*", "+incrby", "+expire", "+ping",
        ],
    );
    let url = redis.address().to_string();
    let fails = |more: &[(&str, &str)], expected: &str| {
        let settings = [
            ("REDIS_STARTUP_MAX_ELAPSED_TIME", "100ms"),
            ("REDIS_STARTUP_INITIAL_INTERVAL", "10ms"),
        ];
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command
            .env_clear()
            .envs(variables(&[&settings[..], more].concat()))
            .output()
            .unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(
            log.contains("redis refuses this server") && log.contains(expected),
            "{log}"
        );
        assert!(!log.contains("wrong"), "{log}");
    };
    fails(
        &[("REDIS_URL", &url), ("REDIS_AUTH", "gate:wrong")],
        "see REDIS_AUTH",
    );
    let in_url = format!("redis://gate:wrong@{url}");
    fails(
        &[("REDIS_URL", &in_url)],
        "see the user and password in REDIS_URL",
    );
}

/// It was `no redis node is known to own hash slot 0`.
#[test]
fn a_start_without_sentinels_ends_with_their_answers_and_what_to_set() {
    let redis = crate::workflows::redis();
    let (url, short) = (
        format!("m,{}", redis.address()),
        ("REDIS_STARTUP_MAX_ELAPSED_TIME", "100ms"),
    );
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_TYPE", "sentinel"),
        short,
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command
        .env_clear()
        .envs(variables(&settings))
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let end = log
        .lines()
        .find(|line| line.contains("gave up after"))
        .unwrap_or_else(|| panic!("{log}"));
    let answer = format!("sentinel {}: ERR unknown command", redis.address());
    let advice =
        "what answers is no sentinel: name sentinels in REDIS_URL, or set REDIS_TYPE=single";
    assert!(end.contains(&answer) && end.ends_with(advice), "{end}");
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

/// Lines of plain text on standard output broke collectors of JSON.
#[test]
fn with_json_nothing_is_written_to_standard_output() {
    let mut server = Process::start(&[("LOG_FORMAT", "json"), ("LOG_LEVEL", "info")]);
    server.signal("TERM");
    assert_eq!(server.standard_output(), "");
}

/// The advice of the start was missing where the user may PING and not count.
#[test]
fn a_user_that_may_not_count_is_told_of_with_what_it_needs() {
    let redis = crate::workflows::redis();
    redis_cli(
        &redis,
        &["ACL", "SETUSER", "gate", "on", ">right", "~*", "+ping"],
    );
    let (url, limits) = (
        redis.address().to_string(),
        Limits::new(crate::support::LIMITS),
    );
    let settings = [
        ("RUNTIME_ROOT", limits.root()),
        ("REDIS_URL", &url),
        ("REDIS_AUTH", "gate:right"),
    ];
    let server = Process::start(&settings);
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"x"}]}]}"#;
    assert_eq!(post(server.address("HTTP"), "/json", body).status, 400);
    server.signal("TERM");
    let (_, log) = server.end();
    assert!(
        log.contains("redis does not count for this server")
            && log.contains("INCRBY and EXPIRE, see REDIS_AUTH"),
        "{log}"
    );
}

/// Pods left their load balancer without a line in the log, and with an empty answer.
#[test]
fn health_that_goes_off_because_of_redis_says_so() {
    let redis = crate::workflows::redis();
    let url = redis.address().to_string();
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true"),
        ("LOG_LEVEL", "info"),
    ];
    let server = Process::start(&settings);
    let http = server.address("HTTP");
    redis.pause();
    await_that("it is unhealthy", || {
        get(http, "/healthcheck").status == 500
    });
    let told = "not healthy: redis does not answer PING (REDIS_HEALTH_CHECK_ACTIVE_CONNECTION)\n";
    assert_eq!(get(http, "/healthcheck").body, told);
    redis.resume();
    await_that("it is healthy", || get(http, "/healthcheck").status == 200);
    server.signal("TERM");
    let (_, log) = server.end();
    assert!(
        log.contains("health is off: redis does not answer PING")
            && log.contains("health is on again"),
        "{log}"
    );
}

/// Envoy shows no message of the rate limit service, and the server wrote nothing.
#[test]
fn requests_that_are_refused_unread_are_told_of_in_the_log() {
    let limits = Limits::new(crate::support::LIMITS);
    let server = Process::start(&[
        ("RUNTIME_ROOT", limits.root()),
        ("TIDEGATE_MAX_DESCRIPTORS", "1"),
        ("TIDEGATE_CORES", "1"),
    ]);
    for _ in 0..3 {
        let answer = post(
            server.address("HTTP"),
            "/json",
            r#"{"domain":"shop","descriptors":[{},{}]}"#,
        );
        assert_eq!(answer.status, 400);
    }
    server.signal("TERM");
    let (_, log) = server.end();
    let lines = log.lines().filter(|line| {
        line.contains("TIDEGATE_MAX_DESCRIPTORS") && line.contains("failure_mode_deny")
    });
    // A minute may end in between.
    assert!((1..=2).contains(&lines.count()), "{log}");
}

#[test]
fn with_debug_each_decision_has_a_line_without_values() {
    let limits = Limits::new(crate::support::LIMITS);
    for (level, lines) in [("debug", 1), ("info", 0)] {
        let server = Process::start(&[("RUNTIME_ROOT", limits.root()), ("LOG_LEVEL", level)]);
        let entries = r#"[{"key":"user","value":"token-of-ada"}]"#;
        let body = format!(r#"{{"domain":"shop","descriptors":[{{"entries":{entries}}}]}}"#);
        assert_eq!(post(server.address("HTTP"), "/json", &body).status, 200);
        speak_http_2(server.address("gRPC"));
        server.signal("TERM");
        let (_, log) = server.end();
        assert!(!log.contains("frame"), "frames hide the decisions: {log}");
        let found: Vec<_> = log
            .lines()
            .filter(|line| line.contains("decision"))
            .collect();
        assert_eq!(found.len(), lines, "{log}");
        assert!(
            found
                .iter()
                .all(|line| line.contains("shop") && line.contains("[user: Ok, 2 of 3 a")),
            "{log}"
        );
        assert!(!log.contains("token-of-ada"), "{log}");
    }
}

/// Sends the first frame of a client, and waits for that of the server.
pub(super) fn speak_http_2(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    stream.read_exact(&mut [0; 9]).unwrap();
}

/// Whoever logged waited for the reader: after some five hundred lines nothing was answered, and SIGTERM did not end it.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let limits = Limits::new(crate::support::LIMITS);
    let mut server = Process::start(&[("RUNTIME_ROOT", limits.root()), ("LOG_LEVEL", "debug")]);
    let http = server.address("HTTP");
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"free","value":"x"}]}]}"#;
    // More than a pipe holds.
    for _ in 0..2_000 {
        assert_eq!(post(http, "/json", body).status, 200);
    }
    assert_eq!(get(http, "/healthcheck").status, 200);
    server.signal("TERM");
    await_that("it ends", || server.child.try_wait().unwrap().is_some());
}

#[test]
fn a_configuration_that_is_deleted_is_warned_of() {
    let limits = Limits::new(crate::support::LIMITS);
    let server = Process::start(&[("RUNTIME_ROOT", limits.root())]);
    std::fs::remove_file(limits.folder().join("limits.yaml")).unwrap();
    let debug = server.address("debug");
    await_that("it is gone", || get(debug, "/rlconfig").body.is_empty());
    server.signal("TERM");
    let (_, log) = server.end();
    assert!(
        log.contains("WARN") && log.contains("it has no domain, so nothing is limited"),
        "{log}"
    );
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

#[test]
fn a_debug_port_that_is_taken_is_only_logged() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let server = Process::start(&[("DEBUG_PORT", &port)]);
    assert_eq!(get(server.address("HTTP"), "/healthcheck").status, 200);
    server.signal("TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0));
    assert!(log.contains("the debug listener cannot bind"), "{log}");
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
