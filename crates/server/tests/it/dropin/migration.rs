//! The tools of the migration from the reference: examples/migration.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use tidegate_pipeline::test_util::RedisServer;

use super::Root;
use crate::operate::process::Process;
use crate::support::{LIMITS, Server, await_that, get, post, repository};
use crate::workflows::redis;

fn tool(name: &str) -> PathBuf {
    repository().join("examples/migration").join(name)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// A list of variables in quotes split values at blanks, and without PATH no program was found.
#[test]
fn variables_of_a_file_are_taken_as_they_stand_in_every_shell() {
    let root = Root::new();
    root.write(
        "ratelimit.env",
        "ONE=1\n\n# TWO=2\nTHREE=a 'b' \"c\" $HOME `d` \\e\nONE=2\nFOUR=\nPATH=/nowhere\nFIVE=last",
    );
    for shell in ["sh", "bash"] {
        let run = |words: &[&str]| {
            let mut command = Command::new(shell);
            command
                .arg(tool("with-env"))
                .arg(root.path("ratelimit.env"))
                .args(words)
                .env("OTHER", "x")
                .output()
                .unwrap()
        };
        let Output { status, stdout, .. } = run(&["FOUR=4", "env"]);
        let path = std::process::Command::new("sh")
            .args(["-c", "echo \"$PATH\""])
            .output()
            .unwrap();
        let path = text(path.stdout);
        let mut lines: Vec<String> = text(stdout).lines().map(str::to_owned).collect();
        lines.sort();
        let path = format!("PATH={}", path.trim_end());
        let expected = [
            "FIVE=last",
            "FOUR=4",
            "ONE=2",
            &path,
            "THREE=a 'b' \"c\" $HOME `d` \\e",
        ];
        assert!(status.success());
        assert_eq!(lines, expected, "{shell}");
        assert_eq!(run(&["sh", "-c", "exit 7"]).status.code(), Some(7));
    }
    root.write("ratelimit.env", "ONE=1\nhunter2\n");
    let output = Command::new(tool("with-env"))
        .arg(root.path("ratelimit.env"))
        .arg("env")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let told = text(output.stderr);
    assert!(
        told.contains("line 2 of ") && !told.contains("hunter2"),
        "{told}"
    );
}

/// The blocks of commands in a section of the guide.
fn commands(section: &str) -> Vec<String> {
    let guide = std::fs::read_to_string(repository().join("docs/from-ratelimit.md")).unwrap();
    let section = guide
        .split(&format!("\n## {section}\n"))
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    section
        .split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// A folder as that of the guide, with the environment of a server of ratelimit on this Redis.
fn folder_of_the_guide(redis: &RedisServer) -> Root {
    let root = Root::new();
    std::fs::create_dir(root.path("tidegate")).unwrap();
    symlink("../bin", root.path("tidegate/bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_tidegate"), root.path("bin/tidegate")).unwrap();
    symlink(repository().join("examples"), root.path("examples")).unwrap();
    root.write("config/limits.yaml", LIMITS);
    let variables = [
        "USE_STATSD=false",
        "HOST=127.0.0.1",
        "GRPC_HOST=127.0.0.1",
        "DEBUG_HOST=127.0.0.1",
        "TRACING_SERVICE_NAME=limits of the shop",
        &format!("REDIS_URL={}", redis.address()),
        &format!("RUNTIME_ROOT={}", root.text("")),
        &format!("GRPC_UDS={}", root.text("taken.sock")),
    ];
    root.write("ratelimit.env", &variables.join("\n"));
    root
}

/// Runs a text of the guide in its folder.
fn run_in(root: &Root, shell: &str, text: &str) -> Command {
    let mut command = Command::new(shell);
    let folder = root.path("");
    command
        .args(["-c", text])
        .current_dir(&folder)
        .env("HOME", folder);
    command
}

/// None of them ran as it was written.
#[test]
fn the_check_of_the_guide_runs_as_it_is_written() {
    let redis = redis();
    let root = folder_of_the_guide(&redis);
    let check = format!("set -e\n{}", commands("1. Check")[0]);
    for shell in ["sh", "bash"] {
        let output = run_in(&root, shell, &check).output().unwrap();
        let told = text(output.stdout) + &text(output.stderr);
        assert!(output.status.success(), "{told}");
        assert!(told.contains("ok: 1 file"), "{told}");
        let line = "\nTRACING_SERVICE_NAME=limits of the shop\n";
        assert!(told.contains(line), "{told}");
    }
}

/// The command of this section, with ports that the system chooses.
fn start_of(section: &str) -> String {
    let ports = ["18081", "18080", "16070", "19090"];
    let start = commands(section).remove(0);
    let chosen = ports
        .iter()
        .fold(start, |text, port| text.replace(port, "0"));
    assert_eq!(chosen.matches("=0 ").count(), 3, "{chosen}");
    format!("exec {}", chosen.trim())
}

#[test]
fn the_servers_of_the_guide_start_as_it_is_written() {
    let redis = redis();
    let root = folder_of_the_guide(&redis);
    let path = run_in(&root, "sh", "echo $PATH").output().unwrap();
    let variables = [("HOME", root.text("")), ("PATH", text(path.stdout))];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    for (section, user) in [("2. Shadow", "shadow"), ("4. Side by side", "both")] {
        let command = run_in(&root, "sh", &start_of(section));
        let server = Process::start_in(command, variables.to_vec());
        let body = format!(
            r#"{{"domain":"shop","descriptors":[{{"entries":[{{"key":"user","value":"{user}"}}]}}]}}"#
        );
        assert_eq!(post(server.address("HTTP"), "/json", &body).status, 200);
        let metrics = get(server.address("debug"), "/metrics").body;
        assert!(metrics.contains("service=\"tidegate\""), "{metrics}");
        server.signal("TERM");
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
    }
    let keys = redis.raw("KEYS *");
    assert!(keys.contains("shadow:shop_user_shadow_"), "{keys}");
    assert!(keys.contains("shop_user_both_"), "{keys}");
    assert!(!keys.contains("shadow:shop_user_both_"), "{keys}");
}

/// Serves these pages, one for each connection, and says where.
fn serve(pages: [String; 2]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/metrics", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for page in pages {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                page.len()
            );
            stream.write_all((head + &page).as_bytes()).unwrap();
        }
    });
    address
}

/// The code, the table, and the complaint.
fn compare(addresses: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(tool("compare.py"))
        .args(addresses)
        .output()
        .unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Real pages, of before and after so many hits of the same user, three of which pass.
fn pages(hits: usize) -> [String; 2] {
    let server = Server::start(&[]);
    let page = || get(server.debug(), "/metrics").body;
    let before = page();
    for _ in 0..hits {
        post(
            server.http(),
            "/json",
            r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#,
        );
    }
    [before, page()]
}

#[test]
fn the_comparison_tells_what_differs_and_what_is_missing() {
    let (some, same, more) = (serve(pages(6)), serve(pages(6)), serve(pages(12)));
    let (code, table, _) = compare(&[&some, &same, "0"]);
    assert_eq!(code, Some(0), "{table}");
    let numbers: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(numbers, ["shop.user", "6", "6", "3", "3"], "{table}");
    let (code, table, _) = compare(&[&serve(pages(6)), &more, "0"]);
    assert!(code == Some(1) && table.contains("<-- differs"), "{table}");

    // An answer nobody gave was a trace of the stack, and two that had counted nothing were the same.
    let (code, _, told) = compare(&[&serve(pages(1)), &serve(pages(0)), "0"]);
    assert!(
        code == Some(2) && told.contains("has counted no hits in 0 s"),
        "{told}"
    );
    let (code, _, told) = compare(&[
        "http://127.0.0.1:1/metrics",
        "http://127.0.0.1:1/metrics",
        "0",
    ]);
    assert!(code == Some(2) && told.lines().count() == 1, "{told}");
    assert!(
        told.starts_with("compare.py: cannot read http://127.0.0.1:1/metrics: "),
        "{told}"
    );
    let (code, _, told) = compare(&["http://127.0.0.1:1/metrics"]);
    assert!(
        code == Some(2) && told.contains("compare.py OLD NEW [SECONDS]"),
        "{told}"
    );
}

/// The reference starts without its folder of limits when it watches the one above: a link that is made later is found.
#[test]
fn a_root_that_comes_later_is_waited_for_as_in_the_reference() {
    let (root, redis) = (Root::new(), redis());
    let (url, current) = (redis.address().to_string(), root.text("data/current"));
    let settings = [
        ("REDIS_URL", &*url),
        ("USE_STATSD", "false"),
        ("RUNTIME_ROOT", &current),
        ("RUNTIME_SUBDIRECTORY", "limits"),
    ];
    let run = |arguments: &[&str]| {
        let output = root
            .command("ratelimit")
            .envs(settings)
            .args(arguments)
            .output()
            .unwrap();
        (output.status.code(), text(output.stderr))
    };
    let absent = format!("RUNTIME_ROOT {current} does not exist");
    for (arguments, code) in [(&[][..], Some(1)), (&["settings"], Some(64))] {
        let (ended, told) = run(arguments);
        assert!(
            ended == code && told.contains(&absent),
            "the folder above is not there either: {told}"
        );
    }
    root.write("data/v1/limits/config/limits.yaml", LIMITS);
    assert_eq!(run(&["settings"]).0, Some(0));
    let command = |name: &str| Command::new(root.path("bin").join(name));
    let server = Process::start_by(command("ratelimit"), &settings);
    let status = || {
        let text =
            r#"{"domain":"shop","descriptors":[{"entries":[{"key":"named","value":"ada"}]}]}"#;
        let answer = post(server.address("HTTP"), "/json", text);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    };
    assert!(!status().contains("currentLimit"));
    symlink("v1", &current).unwrap();
    await_that("limits are in force", || status().contains("currentLimit"));
    server.signal("TERM");
    let (code, log) = server.end();
    assert!(
        code == Some(0) && log.contains("nothing is limited"),
        "{log}"
    );
}
