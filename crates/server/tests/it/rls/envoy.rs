//! Real Envoy in front of the real binary, with the configuration of examples/envoy.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::operate::metrics::metric;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
/// What examples/envoy/config allows each user in a second.
const LIMIT: usize = 3;
/// Far above what anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn requests_are_limited_and_pass_again_in_the_next_window() {
    let stack = Stack::start(OnOutage::LetThrough);
    assert_limited(stack.front, "ada");
    // Another user has a counter of its own, and a request without a user has none.
    assert_limited(stack.front, "grace");
    assert!(
        (0..20).all(|_| get(stack.front, None) == Some(200)),
        "requests without a user are not limited"
    );
}

#[test]
fn an_outage_lets_requests_through_when_told_so() {
    check_outage(OnOutage::LetThrough, 200);
}

#[test]
fn an_outage_refuses_requests_when_told_so() {
    check_outage(OnOutage::Refuse, 500);
}

/// With the default timeout of 20 ms, 21 requests during a stall made the service close the connection of all requests.
#[test]
fn requests_that_time_out_in_a_stall_cost_no_connection() {
    let folder = tempfile::tempdir().unwrap();
    let [grpc, http, debug] = free_ports();
    let service = start_service(ServicePorts { grpc, http, debug }, &folder);
    let (_envoy, front) = front_with(|example| {
        let text = replaced(&example, &port(8081), &port(grpc));
        let text = replaced(&text, "timeout: 0.5s", "timeout: 0.02s");
        // Health checks have a connection, too, which stays.
        let text = replaced(&text, "- timeout: 1s", "- timeout: 60s");
        replaced(&text, "failure_mode_deny: false", "failure_mode_deny: true")
    });
    await_status(front, "first", 200);
    let accepted = || {
        metric(
            ([127, 0, 0, 1], debug).into(),
            r#"tidegate_connections_accepted_total{port="grpc"}"#,
        )
    };
    let before = accepted();
    for stall in 0..3 {
        service.signal("STOP");
        let asking: Vec<_> = (0..60)
            .map(|_| std::thread::spawn(move || get(front, Some("ada"))))
            .collect();
        let answers: Vec<_> = asking
            .into_iter()
            .map(|asking| asking.join().unwrap())
            .collect();
        service.signal("CONT");
        assert_eq!(answers, [Some(500); 60], "stall {stall}");
        await_status(front, &format!("after {stall}"), 200);
    }
    assert_eq!(accepted(), before, "connections to the service");
}

/// Kills the service and starts it again while Envoy keeps running.
fn check_outage(on_outage: OnOutage, expected: u16) {
    let mut stack = Stack::start(on_outage);
    assert_limited(stack.front, "before");

    stack.service.stop();
    for request in 0..10 {
        assert_eq!(
            get(stack.front, Some("during")),
            Some(expected),
            "{on_outage:?}, request {request}"
        );
    }

    stack.service = start_service(stack.service_ports, &stack.folder);
    // Envoy connects anew in its own time; the first answer by a limit ends the outage.
    await_status(stack.front, "probe", 429);
    assert_limited(stack.front, "after");
}

/// A user's requests pass, then are refused, then pass again when the second is over.
#[track_caller]
fn assert_limited(front: u16, user: &str) {
    let mut passed = 0;
    let refused = loop {
        match get(front, Some(user)) {
            Some(200) => passed += 1,
            other => break other,
        }
        assert!(passed < 1_000, "{user} is not limited");
    };
    assert_eq!(refused, Some(429), "{user}, after {passed} requests");
    assert!(
        passed >= LIMIT,
        "{user} was refused after {passed} requests"
    );
    await_status(front, user, 200);
}

/// Sends requests until one is answered as wished. A sender that never pauses sees every window.
#[track_caller]
fn await_status(front: u16, user: &str, wished: u16) {
    let start = Instant::now();
    loop {
        let status = get(front, Some(user));
        if status == Some(wished) {
            return;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{user} still gets {status:?} and not {wished}"
        );
    }
}

/// The status of one request over a connection of its own; none when there is no answer.
pub(crate) fn get(port: u16, user: Option<&str>) -> Option<u16> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let user = user
        .map(|user| format!("x-user: {user}\r\n"))
        .unwrap_or_default();
    write!(
        socket,
        "GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{user}\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

/// What Envoy does with requests when the service does not answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OnOutage {
    LetThrough,
    Refuse,
}

/// Envoy and the service behind its rate limit filter.
struct Stack {
    _envoy: Process,
    front: u16,
    service: Process,
    service_ports: ServicePorts,
    folder: TempDir,
}

#[derive(Clone, Copy)]
struct ServicePorts {
    grpc: u16,
    http: u16,
    debug: u16,
}

impl Stack {
    fn start(on_outage: OnOutage) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [grpc, http, debug] = free_ports();
        let service_ports = ServicePorts { grpc, http, debug };
        let service = start_service(service_ports, &folder);
        let (envoy, front) = front(grpc, on_outage);
        Self {
            _envoy: envoy,
            front,
            service,
            service_ports,
            folder,
        }
    }
}

/// Envoy in front of the service at a port, and its own port.
pub(crate) fn front(grpc: u16, on_outage: OnOutage) -> (Process, u16) {
    front_of("tidegate", grpc, on_outage)
}

/// As above, with another name of the service's cluster.
pub(crate) fn front_of(cluster: &str, grpc: u16, on_outage: OnOutage) -> (Process, u16) {
    front_with(|example| {
        let text = replaced(&example, &port(8081), &port(grpc));
        let text = replaced(
            &text,
            "cluster_name: tidegate }",
            &format!("cluster_name: \"{cluster}\" }}"),
        );
        let text = replaced(&text, "name: tidegate\n", &format!("name: \"{cluster}\"\n"));
        match on_outage {
            OnOutage::LetThrough => text,
            OnOutage::Refuse => {
                replaced(&text, "failure_mode_deny: false", "failure_mode_deny: true")
            }
        }
    })
}

/// Envoy with the configuration of the example after a change, and its own port.
pub(crate) fn front_with(change: impl FnOnce(String) -> String) -> (Process, u16) {
    let folder = tempfile::tempdir().unwrap();
    let [front, application, admin] = free_ports();
    let configuration = folder.path().join("envoy.yaml");
    let mut text =
        change(std::fs::read_to_string(Path::new(EXAMPLES).join("envoy/envoy.yaml")).unwrap());
    for (old, new) in [(10000, front), (10001, application), (9901, admin)] {
        text = replaced(&text, &port(old), &port(new));
    }
    std::fs::write(&configuration, text).unwrap();
    let mut command = Command::new(envoy_program());
    command.args([
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "--log-level",
        "warning",
        "-c",
    ]);
    let envoy = Process(
        command
            .arg(configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    await_port("Envoy", || get(front, None) == Some(200));
    (envoy, front)
}

/// A port as the example has it.
fn port(number: u16) -> String {
    format!("port_value: {number} }}")
}

/// A text in which something is replaced that it must have.
pub(crate) fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "the example has no '{old}'");
    text.replace(old, new)
}

fn start_service(ports: ServicePorts, folder: &TempDir) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .env_clear()
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
        .env("RUNTIME_ROOT", EXAMPLES)
        .env("RUNTIME_SUBDIRECTORY", "envoy");
    command.env("TIDEGATE_HTTP_ADDR", "127.0.0.1:0");
    for (name, port) in [
        ("", ports.http),
        ("GRPC_", ports.grpc),
        ("DEBUG_", ports.debug),
    ] {
        command
            .env(format!("{name}HOST"), "127.0.0.1")
            .env(format!("{name}PORT"), port.to_string());
    }
    let service = Process(command.spawn().unwrap());
    await_port("the service", || {
        TcpStream::connect(("127.0.0.1", ports.grpc)).is_ok()
    });
    service
}

#[track_caller]
fn await_port(what: &str, answers: impl Fn() -> bool) {
    let start = Instant::now();
    while !answers() {
        assert!(start.elapsed() < PATIENCE, "{what} does not answer");
        // Leave the processor to whoever is starting.
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Whether all threads of a process are stopped.
fn is_stopped(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.flatten().all(|thread| {
        let state = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        state
            .rsplit_once(") ")
            .is_none_or(|(_, state)| state.starts_with('T'))
    })
}

/// A child process; killed when dropped, as a crash would.
pub(crate) struct Process(Child);

impl Process {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.0.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        // `kill` returns before the last thread stops.
        while name == "STOP" && !is_stopped(self.0.id()) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn stop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the place of a test's peer is no setting of the server"
)]
fn envoy_program() -> PathBuf {
    let program = match std::env::var_os("TIDEGATE_TEST_ENVOY") {
        Some(program) => PathBuf::from(program),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/envoy"),
    };
    assert!(
        program.exists(),
        "there is no Envoy at {}; `make test` installs it",
        program.display()
    );
    program
}

/// Ports that were free a moment ago. They are held until the last is known, so they differ.
fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let held: [TcpListener; COUNT] =
        std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}
