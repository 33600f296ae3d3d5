//! One of two servers ends behind a real Envoy under load, with the default settings of the server. docs/deploy.md has the figures.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tempfile::TempDir;

use super::envoy::{front_with, get, replaced};
use crate::operate::process::Process;
use crate::support::{await_that, repository, variables};

/// Between two requests of a sender, so that Envoy, servers and senders have a machine of two cores for themselves.
const PAUSE: Duration = Duration::from_millis(2);
/// Requests that are awaited before the end of a server and after it.
const SOME: u64 = 200;

/// How Envoy learns that a server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notice {
    /// It asks for gRPC health, as in the example.
    HealthChecks,
    /// Somebody takes the server out of the list, as Kubernetes does at the time of the signal.
    Endpoints,
    /// It sees calls fail, and leaves the server for a while.
    Outliers,
    /// It does not.
    None,
}

/// A list of servers as Envoy reads it from a file.
fn endpoints(ports: &[u16]) -> String {
    let mut text = String::from("endpoints:\n  - lb_endpoints:\n");
    for port in ports {
        let address = format!("{{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}");
        writeln!(text, "      - endpoint: {{ address: {address} }}").unwrap();
    }
    text
}

/// Puts the list into a folder as Envoy notices it: by a rename.
fn publish(folder: &Path, ports: &[u16]) {
    const KIND: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    let list = endpoints(ports).replace('\n', "\n    ");
    let text = format!(
        "version_info: \"{}\"\nresources:\n  - \"@type\": {KIND}\n    cluster_name: tidegate\n    {list}\n",
        ports.len()
    );
    std::fs::write(folder.join("new"), text).unwrap();
    std::fs::rename(folder.join("new"), folder.join("endpoints.yaml")).unwrap();
}

/// The example with these servers. Without an answer, a request is refused.
fn configuration(example: &str, ports: &[u16], notice: Notice, folder: &Path) -> String {
    const CHECKS: &str = "      # Matters with several";
    let start = example.find(CHECKS).expect("the example has health checks");
    let (head, tail) = example.split_at(start);
    let checks = &tail[..tail.find("      load_assignment:").unwrap()];
    let head = replaced(head, "failure_mode_deny: false", "failure_mode_deny: true");
    let list = format!(
        "      load_assignment:\n        cluster_name: tidegate\n        {}\n",
        endpoints(ports).replace('\n', "\n        ")
    );
    match notice {
        Notice::HealthChecks => format!("{head}{checks}{list}"),
        Notice::Endpoints => {
            publish(folder, ports);
            let path = folder.join("endpoints.yaml");
            let source = format!("path_config_source: {{ path: \"{}\" }}", path.display());
            format!(
                "node: {{ id: test, cluster: test }}\n{head}      type: EDS\n      eds_cluster_config:\n        eds_config: {{ {source} }}\n"
            )
        }
        Notice::Outliers => {
            format!("{head}      outlier_detection: {{ max_ejection_percent: 50 }}\n{list}")
        }
        Notice::None => format!("{head}{list}"),
    }
}

/// What became of the requests.
#[derive(Debug)]
#[expect(dead_code, reason = "they are shown")]
struct Counts {
    /// Up to the signal, from then to the end of the server, and after it.
    requests: [u64; 3],
    failed: [u64; 3],
}

/// A server with the defaults of the program, but for `more`.
fn start(more: &[(&str, &str)]) -> Process {
    let examples = repository().join("examples");
    let ours = [
        ("RUNTIME_ROOT", examples.to_str().unwrap()),
        ("RUNTIME_SUBDIRECTORY", "envoy"),
    ];
    let mut variables = variables(&[&ours[..], more].concat());
    // The default of the tests is not that of the program.
    variables.retain(|(name, _)| {
        name != "TIDEGATE_DRAIN_DELAY" || more.iter().any(|(other, _)| other == name)
    });
    Process::start_in(Command::new(env!("CARGO_BIN_EXE_tidegate")), variables)
}

/// Requests in each phase: up to the signal, from then to the end of the server, and after it.
#[derive(Default)]
struct Senders {
    phase: AtomicU64,
    done: AtomicBool,
    sent: [AtomicU64; 3],
    failed: [AtomicU64; 3],
}

impl Senders {
    /// Sends requests of a user until all is done.
    fn send(&self, port: u16, user: &str) {
        while !self.done.load(Relaxed) {
            let status = get(port, Some(user));
            // A request belongs to the time at which its answer is there.
            let now = self.phase.load(Relaxed) as usize;
            self.sent[now].fetch_add(1, Relaxed);
            if !matches!(status, Some(200 | 429)) {
                self.failed[now].fetch_add(1, Relaxed);
            }
            std::thread::park_timeout(PAUSE);
        }
    }

    fn begin(&self, phase: u64) {
        self.phase.store(phase, Relaxed);
    }

    fn await_some(&self, phase: usize) {
        let counts = format!("requests: {:?}, failed: {:?}", self.sent, self.failed);
        await_that(&counts, || self.sent[phase].load(Relaxed) >= SOME);
    }
}

/// Two servers with the defaults of the program, but for `more`; one ends under load.
fn end_one(notice: Notice, more: &[(&str, &str)]) -> Counts {
    let folder = TempDir::new().unwrap();
    let servers = [(); 2].map(|()| start(more));
    let ports = servers
        .each_ref()
        .map(|server| server.address("gRPC").port());
    let (_envoy, port) =
        front_with(|example| configuration(&example, &ports, notice, folder.path()));
    let senders = Senders::default();
    let [first, second] = servers;
    std::thread::scope(|scope| {
        for user in ["ada", "grace"] {
            let senders = &senders;
            scope.spawn(move || senders.send(port, user));
        }
        // However this ends, the senders do.
        let _done = Done(&senders.done);
        senders.await_some(0);
        senders.begin(1);
        first.signal("TERM");
        if notice == Notice::Endpoints {
            publish(folder.path(), &ports[1..]);
        }
        let (code, log) = first.end();
        assert_eq!(code, Some(0), "{log}");
        senders.begin(2);
        senders.await_some(2);
    });
    drop(second);
    let numbers = |of: [AtomicU64; 3]| of.map(AtomicU64::into_inner);
    Counts {
        requests: numbers(senders.sent),
        failed: numbers(senders.failed),
    }
}

/// Tells the senders to end when it is dropped.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn with_health_checks_the_end_of_one_of_two_servers_fails_no_request() {
    let counts = end_one(Notice::HealthChecks, &[]);
    println!("{counts:?}");
    assert_eq!(counts.failed, [0; 3], "{counts:?}");
}

#[test]
fn with_endpoints_that_are_taken_out_in_time_no_request_fails_either() {
    let counts = end_one(Notice::Endpoints, &[]);
    println!("{counts:?}");
    assert_eq!(counts.failed, [0; 3], "{counts:?}");
}

/// Half of the calls meet a closed port: Envoy has not been told that nobody is there.
#[test]
fn without_any_of_these_calls_fail_once_the_delay_is_over_and_not_before() {
    let counts = end_one(Notice::None, &[("TIDEGATE_DRAIN_DELAY", "1s")]);
    println!("{counts:?}");
    assert!(
        counts.failed[0] == 0 && counts.failed[2] > SOME / 10,
        "{counts:?}"
    );
}

#[test]
fn an_envoy_that_only_sees_calls_fail_loses_a_few() {
    let counts = end_one(Notice::Outliers, &[("TIDEGATE_DRAIN_DELAY", "1s")]);
    println!("{counts:?}");
    let failed = counts.failed[1] + counts.failed[2];
    assert!(
        counts.failed[0] == 0 && failed > 0 && failed < SOME / 2,
        "{counts:?}"
    );
}
