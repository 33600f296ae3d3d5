//! `/bin/ratelimit` with the environments that Envoy Gateway and the sample of Istio give it.

use std::net::{Ipv6Addr, SocketAddr};
use std::process::{Child, Stdio};
use std::time::Instant;

use super::{Root, free_ports};
use crate::support::{PATIENCE, await_that, get};
use crate::tls::authority::Authority;
use crate::workflows::redis;
use crate::xds::management::limits;
use crate::xds::tls::guarded;

/// The server; killed when dropped.
struct Process(Child);

impl Process {
    fn start(root: &Root, environment: &[(&str, &str)]) -> Self {
        let mut command = root.command("ratelimit");
        Self(
            command
                .envs(environment.iter().copied())
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// Ends it as Kubernetes does, but for the time in which calls may still come: a second signal ends that.
    fn terminate(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            let kill = std::process::Command::new("kill")
                .arg(self.0.id().to_string())
                .status()
                .unwrap();
            assert!(
                kill.success(),
                "until it is waited for, it can be sent signals"
            );
            match self.0.try_wait().unwrap() {
                Some(status) => return status.code(),
                None if Instant::now() < until => {
                    std::thread::park_timeout(std::time::Duration::from_millis(5))
                }
                None => panic!("it does not end"),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the probe of Kubernetes succeeds.
fn is_ready(http: SocketAddr) -> bool {
    std::net::TcpStream::connect(http).is_ok() && get(http, "/healthcheck").status == 200
}

const MAPPING: &str = "\
mappings:
  - match: \"ratelimit.service.rate_limit.*.*.total_hits\"
    name: \"gateway_hits\"
    labels: {domain: \"$1\", key: \"$2\"}
";

/// What Envoy Gateway sets and where no path, port or address is in.
const OF_ENVOY_GATEWAY: [(&str, &str); 12] = [
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("LOG_LEVEL", "info"),
    ("USE_STATSD", "false"),
    ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
    ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ("GRPC_SERVER_USE_TLS", "true"),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("USE_PROMETHEUS", "true"),
];

/// A root with the files that Envoy Gateway mounts.
fn root_of_envoy_gateway(authority: &Authority) -> Root {
    let root = Root::new();
    let issued = authority.issue("127.0.0.1");
    root.write("certs/tls.crt", &issued.chain);
    root.write("certs/tls.key", &issued.key);
    root.write("certs/ca.crt", &authority.pem);
    root.write("etc/statsd-exporter/conf.yaml", MAPPING);
    root
}

/// Everything that Envoy Gateway sets, with TLS on both sides; only the ports differ, and the paths are below a root of ours.
#[test]
fn envoy_gateway_finds_what_it_expects() {
    let (redis, authority) = (redis(), Authority::new("gateway"));
    let root = root_of_envoy_gateway(&authority);
    let management = guarded(&authority, "127.0.0.1");
    let [certificate, key, ca] =
        ["tls.crt", "tls.key", "ca.crt"].map(|name| root.text(&format!("certs/{name}")));
    let [http, grpc, debug, prometheus] = free_ports().map(|port| port.to_string());
    let (xds, address) = (management.address.to_string(), redis.address().to_string());
    let ours = [
        ("RUNTIME_ROOT", &*root.text("data")),
        ("CONFIG_GRPC_XDS_SERVER_URL", &xds),
        ("GRPC_SERVER_TLS_CERT", &certificate),
        ("GRPC_SERVER_TLS_KEY", &key),
        ("GRPC_SERVER_TLS_CA_CERT", &ca),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &certificate),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &key),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &ca),
        ("REDIS_URL", &address),
        ("PROMETHEUS_ADDR", &format!(":{prometheus}")),
        (
            "PROMETHEUS_MAPPER_YAML",
            &root.text("etc/statsd-exporter/conf.yaml"),
        ),
        // Not among them: the ports are fixed there.
        ("PORT", &http),
        ("GRPC_PORT", &grpc),
        ("DEBUG_PORT", &debug),
    ];
    let mut server = Process::start(&root, &[&OF_ENVOY_GATEWAY[..], &ours].concat());
    let local = |port: &str| SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
    await_that("the probe of its start", || is_ready(local(&http)));
    management.publish("v1", &[limits(1)]);
    management.await_acknowledged("v1");
    let first = management.await_request("its node", |_| true);
    assert_eq!(first.node.unwrap().id, "envoy-ratelimit");

    let dial = format!("-dial_string=127.0.0.1:{grpc}");
    let trust = format!("-grpc-server-ca-file={ca}");
    let shop = ["-domain=shop", "-descriptors=user=ada"];
    let call = [&["-grpc-use-tls", &dial, &trust][..], &shop].concat();
    for expected in ["OK", "OVER_LIMIT"] {
        let (code, out, _) = root.run("ratelimit_client", &call);
        let expected = format!("response: overall_code:{expected}");
        assert!(code == Some(0) && out.contains(&expected), "{out}");
    }
    await_that("metrics by its mapping", || {
        let page = get(local(&prometheus), "/metrics").body;
        page.contains("gateway_hits{domain=\"shop\",key=\"user\"} 2")
    });
    assert_eq!(server.terminate(), Some(0));
}

/// The container of samples/ratelimit/rate-limit-service.yaml of Istio.
#[test]
fn the_sample_of_istio_finds_what_it_expects() {
    let (root, redis) = (Root::new(), redis());
    root.write(
        "data/ratelimit/config/config.yaml",
        "domain: ratelimit\ndescriptors:\n  - key: PATH\n    value: \"/productpage\"\n    \
         rate_limit: {unit: hour, requests_per_unit: 1}\n",
    );
    let [http, grpc, debug] = free_ports().map(|port| port.to_string());
    let environment = [
        ("LOG_LEVEL", "debug"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &*redis.address().to_string()),
        ("USE_STATSD", "false"),
        ("RUNTIME_ROOT", &root.text("data")),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("HOST", "::"),
        ("GRPC_HOST", "::"),
        // Not among them: the ports are fixed there.
        ("PORT", &http),
        ("GRPC_PORT", &grpc),
        ("DEBUG_PORT", &debug),
    ];
    let mut server = Process::start(&root, &environment);
    let six = SocketAddr::from((Ipv6Addr::LOCALHOST, http.parse().unwrap()));
    await_that("the probe, by IPv6", || is_ready(six));
    await_that("the probe, by IPv4", || {
        is_ready(SocketAddr::from(([127, 0, 0, 1], http.parse().unwrap())))
    });
    for (host, expected) in [
        ("[::1]", "overall_code:OK"),
        ("127.0.0.1", "overall_code:OVER_LIMIT"),
    ] {
        let dial = format!("-dial_string={host}:{grpc}");
        let call = [
            &*dial,
            "-domain=ratelimit",
            "-descriptors=PATH=/productpage",
        ];
        let (code, out, _) = root.run("ratelimit_client", &call);
        assert!(code == Some(0) && out.contains(expected), "{out}");
    }
    assert_eq!(server.terminate(), Some(0));
}
