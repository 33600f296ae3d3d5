//! The services of examples/compose, as processes with the commands and variables of the file.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{peer, yaml};
use crate::rls::envoy;
use crate::support::{await_that, repository};

/// A service that runs; it is killed at the end.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn folder() -> PathBuf {
    repository().join("examples/compose")
}

fn words(service: &Value) -> Vec<String> {
    let command = service["command"].as_str().unwrap();
    command.split(' ').map(str::to_owned).collect()
}

fn spawn(command: &mut Command) -> Service {
    Service(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}: run `scripts/deps test`")),
    )
}

/// The file of this machine that a volume such as `./envoy.yaml:/etc/envoy.yaml:ro` puts at `inside`.
fn mounted(service: &Value, inside: &str) -> PathBuf {
    let volumes = service["volumes"].as_array().unwrap();
    let parts = volumes
        .iter()
        .map(|volume| volume.as_str().unwrap().split(':'));
    let mut found = parts.filter_map(|mut parts| {
        let outside = parts.next()?;
        (parts.next()? == inside).then(|| folder().join(outside))
    });
    found
        .next()
        .unwrap_or_else(|| panic!("no volume at {inside}"))
}

fn redis(service: &Value, port: u16, data: &std::path::Path) -> Service {
    let words = words(service);
    let (program, arguments) = words.split_first().unwrap();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .args(["--port", &port.to_string(), "--dir"])
        .arg(data);
    spawn(&mut command)
}

/// A Tidegate, whose variables name the ports of a container.
fn tidegate(service: &Value, redis: u16, grpc: u16) -> Service {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(words(service)).env_clear();
    for (name, value) in service["environment"].as_object().unwrap() {
        command.env(name, value.as_str().unwrap());
    }
    let limits = mounted(service, "/limits/config");
    assert_eq!(service["environment"]["RUNTIME_ROOT"], "/limits");
    command
        .env("RUNTIME_ROOT", limits.parent().unwrap())
        .env("REDIS_URL", format!("127.0.0.1:{redis}"))
        .env("GRPC_PORT", grpc.to_string())
        .env("TIDEGATE_HTTP_ADDR", "127.0.0.1:0")
        .envs([("PORT", "0"), ("DEBUG_PORT", "0")]);
    spawn(&mut command)
}

fn front(service: &Value, port: u16, servers: [u16; 2], data: &std::path::Path) -> Service {
    let text = std::fs::read_to_string(mounted(service, "/etc/envoy.yaml")).unwrap();
    let address = |host: &str, port: u16| format!("address: {host}, port_value: {port} }}");
    let mut text = envoy::replaced(
        &text,
        &address("0.0.0.0", 10000),
        &address("127.0.0.1", port),
    );
    let application = address("127.0.0.1", 10001);
    text = envoy::replaced(&text, &application, &address("127.0.0.1", free_port()));
    for (host, server) in ["tidegate-1", "tidegate-2"].into_iter().zip(servers) {
        text = envoy::replaced(&text, &address(host, 8081), &address("127.0.0.1", server));
    }
    let file = data.join("envoy.yaml");
    std::fs::write(&file, text).unwrap();
    let words = words(service);
    let (program, arguments) = words.split_first().unwrap();
    let arguments = arguments.iter().map(|word| match word.as_str() {
        "/etc/envoy.yaml" => file.display().to_string(),
        word => word.to_owned(),
    });
    spawn(peer(program).args(["--concurrency", "1"]).args(arguments))
}

#[test]
fn two_servers_of_the_compose_file_share_a_limit_behind_envoy() {
    let services = yaml(&folder().join("compose.yaml")).remove(0)["services"].take();
    let data = tempfile::tempdir().unwrap();
    let [redis_port, port, first, second] = std::array::from_fn(|_| free_port());
    let _redis = redis(&services["redis"], redis_port, data.path());
    let one = tidegate(&services["tidegate-1"], redis_port, first);
    let _other = tidegate(&services["tidegate-2"], redis_port, second);
    let _envoy = front(&services["envoy"], port, [first, second], data.path());
    let status = |user: &str| envoy::get(port, Some(user));
    await_that("the fourth request of a second is refused", || {
        let all: Vec<_> = (0..4).map(|_| status("ada")).collect();
        all == [Some(200), Some(200), Some(200), Some(429)]
    });
    // Whichever server Envoy asks: with one that counts alone, six requests of a second would pass.
    drop(one);
    await_that("the other server limits alone", || {
        let all: Vec<_> = (0..4).map(|_| status("grace")).collect();
        all == [Some(200), Some(200), Some(200), Some(429)]
    });
}
