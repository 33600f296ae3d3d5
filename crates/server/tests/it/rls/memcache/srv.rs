//! Servers of memcached that DNS names, over TLS and without.

use tidegate::settings::Settings;
use tidegate_memcache::test_util::MemcachedServer;

use super::names::{Names, Zone};
use super::remaining;
use crate::support::{LIMITS, Limits, PATIENCE, Server, await_that, variables};

const SERVICE: &str = "_memcache._tcp.cache.example.";

fn at(server: &MemcachedServer) -> (String, u16) {
    ("127.0.0.1".to_owned(), server.port())
}

fn start(names: &Names, more: &[(&str, &str)]) -> Server {
    let resolver = names.address.to_string();
    let own = [
        ("BACKEND_TYPE", "memcache"),
        ("MEMCACHE_SRV", SERVICE),
        ("TIDEGATE_DNS_SERVERS", resolver.as_str()),
    ];
    Server::start(&[&own, more].concat())
}

/// What ends the start.
fn refused(more: &[(&str, &str)]) -> String {
    let limits = Limits::new(LIMITS);
    let given = variables(
        &[
            &[
                ("RUNTIME_ROOT", limits.root()),
                ("BACKEND_TYPE", "memcache"),
            ],
            more,
        ]
        .concat(),
    );
    match Settings::parse(&given.into_iter().collect()) {
        Ok(settings) => tidegate::run(settings, std::future::pending, |_| panic!("it started"))
            .unwrap_err()
            .to_string(),
        Err(mistakes) => mistakes.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn servers_are_found_in_dns_and_looked_up_again() {
    let memcached = [MemcachedServer::start(), MemcachedServer::start()];
    let names = Names::start(Zone::Servers(vec![at(&memcached[0])]));
    let server = start(
        &names,
        &[("MEMCACHE_SRV_REFRESH", "20ms"), ("TIDEGATE_CORES", "1")],
    );
    assert_eq!(
        server.started.store,
        "memcached at the servers of _memcache._tcp.cache.example."
    );
    let channel = server.channel().await;
    assert_eq!(remaining(&channel, "x").await, 99);
    await_that("it is charged", || !memcached[0].keys().is_empty());

    // Nothing moves while DNS fails.
    for zone in [Zone::Failing, Zone::NoSuchName, Zone::Servers(Vec::new())] {
        names.set(zone);
        let before = names.asked();
        await_that("it is asked again", || names.asked() > before + 2);
        assert!(remaining(&channel, "x").await < 99);
    }
    await_that("all four are charged", || {
        server.stat("ratelimit.memcache.increment.__code=success") == 4
    });
    names.set(Zone::Large(vec![at(&memcached[1])]));
    // Of the first server, the number only falls. The other one need not begin with 99: a call that the first one answered may be
    // charged there.
    let (mut before, until) = (95, std::time::Instant::now() + PATIENCE);
    loop {
        let left = remaining(&channel, "x").await;
        if left > before {
            break;
        }
        before = left;
        assert!(
            std::time::Instant::now() < until,
            "the other server counts anew"
        );
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    await_that("it is charged there", || !memcached[1].keys().is_empty());
}

#[test]
fn without_servers_in_dns_there_is_no_start() {
    for (zone, reason) in [
        (
            Zone::NoSuchName,
            "there is no _memcache._tcp.cache.example.",
        ),
        (
            Zone::Servers(Vec::new()),
            "_memcache._tcp.cache.example. has no SRV records",
        ),
        (Zone::Failing, "answers with error 2"),
    ] {
        let names = Names::start(zone);
        let resolver = names.address.to_string();
        let error = refused(&[
            ("MEMCACHE_SRV", SERVICE),
            ("TIDEGATE_DNS_SERVERS", &resolver),
        ]);
        assert!(
            error.starts_with("Unable to fetch servers from SRV: ") && error.contains(reason),
            "{error}"
        );
    }
}

#[test]
fn a_certificate_that_is_none_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, "text").unwrap();
    let error = refused(&[
        ("MEMCACHE_HOST_PORT", "localhost:1"),
        ("MEMCACHE_TLS", "true"),
        ("MEMCACHE_TLS_CACERT", path.to_str().unwrap()),
    ]);
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn counters_are_kept_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let pair = rcgen::generate_simple_self_signed(vec!["memcached.example".to_owned()]).unwrap();
    std::fs::write(path("server.pem"), pair.cert.pem()).unwrap();
    std::fs::write(path("server.key"), pair.signing_key.serialize_pem()).unwrap();
    let options = format!(
        "ssl_chain_cert={},ssl_key={}",
        path("server.pem"),
        path("server.key")
    );
    let memcached = MemcachedServer::start_with(&["-Z", "-o", &options]);
    let authority = path("server.pem");
    for (skipped, counted) in [("false", false), ("true", true)] {
        let list = memcached.address().to_string();
        let server = Server::start(&[
            ("BACKEND_TYPE", "memcache"),
            ("MEMCACHE_HOST_PORT", &list),
            ("MEMCACHE_TLS", "true"),
            ("MEMCACHE_TLS_CACERT", &authority),
            ("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", skipped),
            ("TIDEGATE_CORES", "1"),
        ]);
        let channel = server.channel().await;
        assert_eq!(remaining(&channel, "x").await, 99);
        assert_eq!(
            remaining(&channel, "x").await,
            if counted { 98 } else { 99 },
            "{skipped}"
        );
    }
}
