//! What the load generator counts and reports.

use std::process::{Command, Output};

use serde_json::Value;

use crate::peer::{Act, Peer};

fn bench(address: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"));
    command
        .args(["ratelimit", "--address", address, "--warmup", "0s"])
        .args(arguments);
    command.output().unwrap()
}

/// Runs the load against a server that acts by `act` and returns the JSON figures.
fn measure(act: impl Fn(u64) -> Act + Send + Sync + 'static, arguments: &[&str]) -> Value {
    let peer = Peer::start(act);
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let output = bench(
        &peer.address.to_string(),
        &[arguments, &["--json", json.to_str().unwrap()]].concat(),
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

/// Sends exactly 300 requests and compares the counts.
fn check(
    act: impl Fn(u64) -> Act + Send + Sync + 'static,
    ok: u64,
    over_limit: u64,
    errors: &[(&str, u64)],
) {
    let figures = measure(
        act,
        &[
            "--requests",
            "300",
            "--connections",
            "3",
            "--streams",
            "4",
            "--duration",
            "20s",
        ],
    );
    let answers = &figures["answers"];
    let expected: Value = errors
        .iter()
        .map(|(name, count)| ((*name).to_owned(), Value::from(*count)))
        .collect();
    assert_eq!(
        (&answers["ok"], &answers["over_limit"], &answers["errors"]),
        (&ok.into(), &over_limit.into(), &expected)
    );
}

#[test]
fn answers_are_counted_by_kind() {
    check(|_| Act::Ok, 300, 0, &[]);
    check(
        |request| {
            if request % 3 == 0 {
                Act::OverLimit
            } else {
                Act::Ok
            }
        },
        200,
        100,
        &[],
    );
    check(
        |request| {
            if request < 7 {
                Act::Status("14")
            } else {
                Act::Ok
            }
        },
        293,
        0,
        &[("UNAVAILABLE", 7)],
    );
    check(
        |request| if request < 5 { Act::Refuse } else { Act::Ok },
        295,
        0,
        &[("stream refused", 5)],
    );
}

#[test]
fn the_load_goes_on_when_connections_end() {
    for (name, act) in [("goaway", Act::GoAway), ("cut", Act::Cut)] {
        let figures = measure(
            move |request| if request % 50 == 49 { act } else { Act::Ok },
            &[
                "--requests",
                "1000",
                "--connections",
                "2",
                "--streams",
                "5",
                "--duration",
                "20s",
            ],
        );
        let answers = &figures["answers"];
        // Each end loses at most what is in flight on one connection.
        assert!(answers["ok"].as_u64().unwrap() > 800, "{name}: {answers}");
    }
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let figures = measure(|_| Act::Ok, &["--rate", "2000", "--duration", "1s"]);
    let rate = figures["decisions_per_second"].as_f64().unwrap();
    assert!((1_800.0..2_200.0).contains(&rate), "{rate}");
}

#[test]
fn an_open_loop_charges_a_slow_server_for_what_waits() {
    // One stream at 500 requests a second, while the first request stalls for half a second: a quarter of a thousand
    // requests become due meanwhile, and the median of one second's requests has waited.
    let stall = |request| {
        if request == 0 {
            let (_keep, never) = std::sync::mpsc::channel::<()>();
            let _ = never.recv_timeout(std::time::Duration::from_millis(500));
        }
        Act::Ok
    };
    let figures = measure(
        stall,
        &[
            "--rate",
            "500",
            "--connections",
            "1",
            "--streams",
            "1",
            "--duration",
            "800ms",
        ],
    );
    let median = figures["answers"]["latency_us"]["p50"].as_f64().unwrap();
    assert!(median > 50_000.0, "{figures}");
}

#[test]
fn the_server_process_is_found_by_its_port() {
    let figures = measure(|_| Act::Ok, &["--requests", "2000"]);
    assert!(
        figures["server"]["resident_bytes"].as_u64().unwrap() > 100_000,
        "{figures}"
    );
}

#[test]
fn nothing_measured_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let output = bench(&address, &["--duration", "200ms"]);
    assert!(!output.status.success());
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("errors could not connect"), "{shown}");
}
