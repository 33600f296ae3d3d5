//! Exit codes, by what became of a workflow or of the question.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::json;
use tidegate_pipeline::test_util::RedisCluster;

use super::*;
use crate::support::await_that;

#[test]
fn waiting_ends_with_the_outcome() {
    let flows = Flows::start(&[]);
    let succeeded = flows.create(workflow("w", "a b<a"));
    let failed = failing(&flows);
    work(&flows);
    let cancelled = flows.create(workflow("w", "a"));
    flows.post(
        &format!("/v1/workflows/{cancelled}:cancel"),
        serde_json::json!({}),
    );
    let running = flows.create(workflow("w", "a"));
    for verb in ["wait", "watch"] {
        let check = |id: &str, code: i32, status: &str| {
            let ended =
                tidegate(&flows, &["workflow", verb, id, "--timeout", "100ms"]).expect(code);
            assert_eq!(ended.json()["status"], status, "{verb}");
        };
        check(&succeeded, DONE, "succeeded");
        check(&failed, FAILED, "failed");
        check(&cancelled, CANCELLED, "cancelled");
        check(&running, TIMED_OUT, "running");
    }
}

#[test]
fn run_starts_a_workflow_and_ends_with_it() {
    let flows = Flows::start(&[]);
    let files = Files::new(&[(
        "a.yaml",
        "name: n\njobs:\n- {name: a, handler: h}\n- {name: b, handler: h, after: a}\n",
    )]);
    let child = ask(
        &flows,
        &in_json(&["workflow", "run", &files.text("a.yaml")]),
    )
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    await_that("all is done", || {
        work(&flows);
        flows.get("/v1/workflows:count")["by_status"]["succeeded"] == 1
    });
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(DONE));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["status"], &said["job_counts"]["succeeded"]),
        (&"succeeded".into(), &2.into())
    );
}

#[test]
fn watch_tells_of_every_change_until_the_end() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a b<a"));
    let mut child = ask(&flows, &in_json(&["workflow", "watch", &id]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["status"], "running");
    work(&flows);
    while next()["status"] != "succeeded" {}
    assert_eq!(child.wait().unwrap().code(), Some(DONE));
}

#[test]
fn a_watch_ends_when_nobody_reads_it() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a b<a"));
    let mut child = ask(&flows, &in_json(&["workflow", "watch", &id]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert_eq!(flows.claim(1).len(), 1);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr),
        (Some(UNREAD), Vec::new())
    );
}

#[test]
fn a_server_that_restarts_is_waited_for() {
    let data = tempfile::tempdir().unwrap();
    let folder = ("TIDEGATE_DATA_DIR", data.path().to_str().unwrap());
    // An address of its own: meanwhile nobody else takes its port.
    let flows = Flows::start(&[folder, ("TIDEGATE_HTTP_ADDR", "127.0.0.77:0")]);
    let id = flows.create(workflow("w", "a b<a"));
    let address = flows.api().to_string();
    let mut child = ask(&flows, &in_json(&["workflow", "watch", &id]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    flows.server.stop();
    let flows = Flows::start(&[folder, ("TIDEGATE_HTTP_ADDR", &address)]);
    work(&flows);
    let last: Value = serde_json::from_str(&lines.last().unwrap().unwrap()).unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), &last["status"]),
        (Some(DONE), &"succeeded".into())
    );
}

#[test]
fn an_interrupted_watch_says_that_the_workflow_continues() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    let mut child = ask(&flows, &in_json(&["workflow", "watch", &id]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    assert!(
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(INTERRUPTED), "{error}");
    assert!(
        error.contains(&format!("workflow {id} continues")),
        "{error}"
    );
}

#[test]
fn what_is_not_there_is_not_found() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    let unknown = "01M7Z85C8H08RJZ5Q5JGPKMY04";
    for id in ["nope", unknown, "../queues"] {
        for verb in [
            "show", "wait", "watch", "cancel", "start", "pause", "resume", "retry", "rm", "graph",
        ] {
            let ended = tidegate(&flows, &["workflow", verb, id]).expect(NOT_FOUND);
            // Only JSON names the code, and a graph has forms of its own.
            if verb != "graph" {
                ended.says("workflow_not_found");
            }
        }
    }
    tidegate(&flows, &["job", "show", &id, "nope"])
        .expect(NOT_FOUND)
        .says("has no job 'nope'");
    tidegate(&flows, &["queue", "resume", "nope"])
        .expect(NOT_FOUND)
        .says("queue_not_found");
    // The others are done all the same.
    let several = tidegate(&flows, &["workflow", "cancel", "nope", &id, unknown]).expect(NOT_FOUND);
    assert_eq!(
        (
            several.json()["status"].as_str(),
            several.error.matches("error: ").count()
        ),
        (Some("cancelled"), 2)
    );
}

#[test]
fn what_the_state_forbids_is_refused() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a"));
    tidegate(&flows, &["workflow", "start", &id])
        .expect(REFUSED)
        .says("already_started");
    tidegate(&flows, &["workflow", "rm", &id])
        .expect(REFUSED)
        .says("cancel it first");
    tidegate(&flows, &["job", "retry", &id, "a"])
        .expect(REFUSED)
        .says("state_conflict");
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let list = |server: &str| run(binary(&["workflow", "list"]).env("TIDEGATE_SERVER", server));
    list(&closed).expect(UNAVAILABLE).says(&format!(
        "no server answers at http://{closed}. Is it running?"
    ));
    list("http://")
        .expect(USAGE)
        .says("such as http://127.0.0.1:7070");
    let flows = Flows::start(&[]);
    list(&flows.server.http().to_string())
        .expect(UNAVAILABLE)
        .says("is not a Tidegate server");
    list(&flows.server.grpc().to_string())
        .expect(UNAVAILABLE)
        .says("is not the HTTP API of Tidegate");
    // The option takes precedence over the variable.
    run(
        binary(&["workflow", "list", "--server", &flows.api().to_string()])
            .env("TIDEGATE_SERVER", closed),
    )
    .expect(DONE);
}

#[test]
fn tokens_decide_who_may() {
    let files = Files::new(&[
        (
            "tokens",
            "read eve secret-of-eve\nadmin ada secret-of-ada\n",
        ),
        ("mine", "secret-of-ada\n"),
    ]);
    let flows = Flows::start(&[("TIDEGATE_TOKENS_FILE", &files.text("tokens"))]);
    let with = |token: &str, arguments: &[&str]| {
        run(ask(&flows, &in_json(arguments)).env("TIDEGATE_TOKEN", token))
    };
    tidegate(&flows, &["queue", "list"])
        .expect(REFUSED)
        .says("TIDEGATE_TOKEN or --token-file");
    with("wrong", &["queue", "list"])
        .expect(REFUSED)
        .says("unauthorized")
        .says("does not know the token that was given");
    with("secret-of-eve", &["queue", "list"]).expect(DONE);
    with("secret-of-eve", &["queue", "pause", "default"])
        .expect(REFUSED)
        .says("forbidden");
    with(
        "wrong",
        &["queue", "list", "--token-file", &files.text("mine")],
    )
    .expect(DONE);
    with("no\ntoken", &["queue", "list"]).expect(USAGE);
    tidegate(&flows, &["queue", "list", "--token-file", "/nowhere"])
        .expect(USAGE)
        .says("cannot be read");
}

/// A cluster that serves the slots of the nodes that are left, and a server of it with 200 workflows.
fn with_200_workflows() -> (tokio::runtime::Runtime, RedisCluster, Flows) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let cluster = runtime.block_on(RedisCluster::start(3, 0));
    for server in cluster.servers() {
        let set = server.raw("CONFIG SET cluster-require-full-coverage no");
        assert_eq!(set, "+OK\r\n");
    }
    let addresses = cluster.addresses();
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let flows = Flows::start(&[
        ("REDIS_URL", &addresses.join(",")),
        ("REDIS_TYPE", "cluster"),
        ("REDIS_SOCKET_TYPE", "tcp"),
    ]);
    let workflows: Vec<Value> = (0..200).map(|_| workflow("w", "a")).collect();
    flows.post("/v1/workflows:batch", json!({"workflows": workflows}));
    (runtime, cluster, flows)
}

/// With a dead node, an action on all workflows said that all was done, and left those of the node alone.
#[test]
fn what_a_part_of_the_store_hides_is_named() {
    let (_runtime, mut cluster, flows) = with_200_workflows();
    let bulk = json!({"action": "pause", "filter": {"name": "w"}});
    let whole = flows.post("/v1/workflows:bulk", bulk.clone());
    assert_eq!(whole["matched"], 200);
    assert_eq!(whole["incomplete"], Value::Null);
    let dead = (cluster.owner("tg:queues") + 1) % 3;
    cluster.server_mut(dead).kill();
    let mut answer = Value::Null;
    await_that("the node is missed", || {
        answer = flows.post("/v1/workflows:bulk", bulk.clone());
        answer["incomplete"].is_object()
    });
    let done = answer["done"].as_u64().unwrap();
    assert_eq!(answer["matched"], done);
    assert!((1..200).contains(&done), "{answer}");
    let hidden = answer["incomplete"]["partitions"].as_array().unwrap().len();
    let expected = format!("this is not all: {hidden} partitions of the store did not answer");
    for verb in ["list", "count"] {
        tidegate(&flows, &["workflow", verb, "--name", "w"])
            .expect(UNAVAILABLE)
            .says(&expected);
    }
    for matched in [done, 0] {
        let cancel = ["workflow", "cancel", "--name", "w", "--yes"];
        let ended = tidegate(&flows, &cancel)
            .expect(UNAVAILABLE)
            .says(&expected);
        let json = ended.json();
        assert_eq!(json["matched"], matched);
        assert_eq!(json["done"], matched);
        assert!(json["incomplete"]["reason"].is_string(), "{json}");
    }
}
