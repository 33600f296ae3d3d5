//! Certificates for Redis and memcached that change while the server runs.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use tidegate_memcache::test_util::MemcachedServer;
use tidegate_pipeline::test_util::{RedisServer, free_port};
use tonic::transport::Channel;

use super::authority::borrowed;
use super::{Authority, Folder, Issued};
use crate::operate::process::Process;
use crate::support::{LIMITS, Limits, PATIENCE, Server, ask, await_that, channel, get, request};

/// The settings of a store whose variables begin with `prefix`, with files that [`renew`] writes.
fn settings(folder: &Folder, prefix: &str) -> Vec<(&'static str, String)> {
    let name = |last: &str| &*Box::leak(format!("{prefix}_TLS{last}").into_boxed_str());
    vec![
        (name(""), "true".to_owned()),
        (name("_CACERT"), folder.text("ca.pem")),
        (name("_CLIENT_CERT"), folder.text("client.pem")),
        (name("_CLIENT_KEY"), folder.text("client.key")),
    ]
}

/// What our server trusts and shows, each file replaced as a whole.
fn renew(folder: &Folder, trusted: &str, shown: &Issued) {
    for (name, text) in [
        ("ca.pem", trusted),
        ("client.pem", &shown.chain),
        ("client.key", &shown.key),
    ] {
        folder.write("new", text);
        fs::rename(folder.path("new"), folder.path(name)).unwrap();
    }
}

/// Calls without end, one after the other, and how many were answered and failed.
#[derive(Default)]
struct Load {
    answered: AtomicU64,
    failed: AtomicU64,
    done: AtomicBool,
}

impl Load {
    fn start(channel: &Channel) -> (Arc<Self>, tokio::task::JoinHandle<()>) {
        let (load, channel) = (Arc::new(Self::default()), channel.clone());
        let sent = load.clone();
        let task = tokio::spawn(async move {
            while !sent.done.load(Relaxed) {
                let answer = ask(&channel, request("shop", &[&[("named", "x")]])).await;
                if answer.is_ok() {
                    &sent.answered
                } else {
                    &sent.failed
                }
                .fetch_add(1, Relaxed);
            }
        });
        (load, task)
    }

    fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    /// Waits until so many more calls were answered.
    fn go_on(&self, calls: u64) {
        let before = self.answered.load(Relaxed);
        await_that("calls are answered", || {
            self.answered.load(Relaxed) >= before + calls
        });
    }
}

/// A Redis that takes only clients with a certificate by what is in `clients.pem`.
async fn strict_redis(folder: &Folder) -> (RedisServer, u16) {
    let port = free_port();
    let (number, files) = (
        port.to_string(),
        ["server.pem", "server.key", "clients.pem"].map(|name| folder.text(name)),
    );
    let arguments = [
        ["--tls-port", &number],
        ["--tls-cert-file", &files[0]],
        ["--tls-key-file", &files[1]],
        ["--tls-ca-cert-file", &files[2]],
        ["--tls-auth-clients", "yes"],
    ];
    (
        RedisServer::start_with(arguments.as_flattened()).await,
        port,
    )
}

/// Ends all connections to Redis, at least one.
fn cut(redis: &RedisServer) {
    let ended = redis.raw("CLIENT KILL TYPE normal SKIPME yes");
    assert!(
        ended
            .trim()
            .strip_prefix(':')
            .is_some_and(|number| number != "0"),
        "{ended}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_certificates_are_shown_to_redis_without_a_restart() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (theirs, ours) = (Folder::new(), Folder::new());
    theirs.put(&old.issue("127.0.0.1"));
    theirs.write("clients.pem", &old.pem);
    let (redis, port) = strict_redis(&theirs).await;
    renew(&ours, &old.pem, &old.issue("tidegate"));
    let mut settings = settings(&ours, "REDIS");
    settings.extend([
        ("REDIS_URL", format!("127.0.0.1:{port}")),
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
    ]);
    let server = tokio::task::spawn_blocking(move || Server::start(&borrowed(&settings)))
        .await
        .unwrap();
    assert_eq!(server.stat("certs.num_values"), 3);
    assert_eq!(
        server.stat("certs.load_attempts"),
        1,
        "they are looked at before the first page is read"
    );
    let (load, task) = Load::start(&server.channel().await);
    load.go_on(50);

    // Both authorities are trusted while one follows the other.
    renew(
        &ours,
        &format!("{}{}", old.pem, new.pem),
        &new.issue("tidegate"),
    );
    await_that("the renewed files are read", || {
        server.stat("certs.load_attempts") == 2
    });
    load.go_on(50);
    assert_eq!((load.failed(), server.stat("certs.load_failures")), (0, 0));

    theirs.put(&new.issue("127.0.0.1"));
    theirs.write("clients.pem", &new.pem);
    let [chain, key, clients] =
        ["server.pem", "server.key", "clients.pem"].map(|name| theirs.text(name));
    let set =
        format!("CONFIG SET tls-cert-file {chain} tls-key-file {key} tls-ca-cert-file {clients}");
    assert!(redis.raw(&set).starts_with("+OK"));
    load.go_on(50);
    assert_eq!(load.failed(), 0, "connections that are open stay");
    // A call whose connection is cut fails, since nobody knows whether it was counted.
    cut(&redis);
    load.go_on(50);
    let failed = load.failed();
    load.go_on(500);
    assert_eq!(load.failed(), failed, "from then on no call fails");
    load.done.store(true, Relaxed);
    task.await.unwrap();
    println!(
        "{} calls, {failed} of them failed with the connections that were cut",
        load.answered.load(Relaxed) + failed
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_certificates_are_shown_to_memcached_without_a_restart() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (theirs, ours) = (Folder::new(), Folder::new());
    let serve = |authority: &Authority| {
        theirs.put(&authority.issue("localhost"));
        theirs.write("clients.pem", &authority.pem);
    };
    serve(&old);
    let [chain, key, clients] =
        ["server.pem", "server.key", "clients.pem"].map(|name| theirs.text(name));
    let options =
        format!("ssl_chain_cert={chain},ssl_key={key},ssl_ca_cert={clients},ssl_verify_mode=2");
    let mut memcached = MemcachedServer::start_with(&["-Z", "-o", &options]);
    renew(&ours, &old.pem, &old.issue("tidegate"));
    let mut settings = settings(&ours, "MEMCACHE");
    settings.extend([
        ("BACKEND_TYPE", "memcache".to_owned()),
        (
            "MEMCACHE_HOST_PORT",
            format!("localhost:{}", memcached.port()),
        ),
    ]);
    let server = Server::start(&borrowed(&settings));
    let charged = || server.stat("ratelimit.memcache.increment.__code=success");
    let (load, task) = Load::start(&server.channel().await);
    await_that("calls are counted", || charged() > 50);

    renew(&ours, &new.pem, &new.issue("tidegate"));
    await_that("the renewed files are read", || {
        server.stat("certs.load_attempts") == 2
    });
    let before = charged();
    await_that("the connections that are open stay", || {
        charged() > before + 50
    });
    memcached.kill();
    serve(&new);
    memcached.restart();
    let before = charged();
    await_that("calls are counted again", || charged() > before + 50);
    load.done.store(true, Relaxed);
    task.await.unwrap();
    assert_eq!(load.failed(), 0, "calls pass without memcached");
}

/// Half a pair, and a backup that has expired, keep what was there.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_cannot_be_shown_to_redis_is_told_and_changes_nothing() {
    let (authority, limits) = (Authority::new("ours"), Limits::new(LIMITS));
    let (theirs, ours) = (Folder::new(), Folder::new());
    theirs.put(&authority.issue("127.0.0.1"));
    theirs.write("clients.pem", &authority.pem);
    let (redis, port) = strict_redis(&theirs).await;
    renew(&ours, &authority.pem, &authority.issue("tidegate"));
    let mut settings = settings(&ours, "REDIS");
    settings.extend([
        ("REDIS_URL", format!("127.0.0.1:{port}")),
        ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
        ("RUNTIME_ROOT", limits.root().to_owned()),
    ]);
    let server = tokio::task::spawn_blocking(move || Process::start(&borrowed(&settings)))
        .await
        .unwrap();
    let failures = || -> u64 {
        let stats = get(server.address("debug"), "/stats").body;
        stats
            .lines()
            .find_map(|line| line.strip_prefix("certs.load_failures: "))
            .unwrap()
            .parse()
            .unwrap()
    };
    let channel = channel(server.address("gRPC")).await;
    // Opens a connection to Redis.
    ask(&channel, request("shop", &[&[("named", "x")]]))
        .await
        .unwrap();
    ours.write("client.pem", &authority.issue("other").chain);
    await_that("half a pair is noticed", || failures() == 1);
    renew(&ours, &authority.pem, &authority.expired("tidegate"));
    await_that("an expired pair is noticed", || failures() == 2);
    // The next connection shows what was there before.
    cut(&redis);
    let until = Instant::now() + PATIENCE;
    while ask(&channel, request("shop", &[&[("named", "x")]]))
        .await
        .is_err()
    {
        assert!(Instant::now() < until, "redis refuses it");
    }
    server.signal("TERM");
    let (code, log) = tokio::task::spawn_blocking(|| server.end()).await.unwrap();
    assert_eq!(code, Some(0));
    for told in [
        "the old ones stay: REDIS_TLS_CLIENT_KEY='/",
        "the changed certificate has expired already, and the old one stays",
    ] {
        assert_eq!(log.matches(told).count(), 1, "{told}: {log}");
    }
}
