//! Settings of memcached as the store of the counters.

use tidegate::settings::Settings;

use super::parse;

const SERVERS: (&str, &str) = ("MEMCACHE_HOST_PORT", "a:1,b:2");

fn memcache(more: &[(&str, &str)]) -> Result<Settings, String> {
    parse(&[&[("BACKEND_TYPE", "memcache")], more].concat())
}

#[track_caller]
fn check(more: &[(&str, &str)], expected: &str) {
    let error = memcache(more).unwrap_err();
    let one = error.starts_with("1 setting is wrong\n");
    assert!(one && error.contains(expected), "{error}");
}

#[test]
fn memcached_needs_servers_from_one_place() {
    let servers = "BACKEND_TYPE='memcache': it needs servers: set MEMCACHE_HOST_PORT";
    check(&[], servers);
    let both = "Both MEMCACHE_HOST_PORT and MEMCACHE_SRV are set";
    check(&[SERVERS, ("MEMCACHE_SRV", "_m._tcp.x")], both);
    for name in ["cache.example", "_m._tcp"] {
        let expected = format!("could not parse {name} to SRV parts");
        check(&[("MEMCACHE_SRV", name)], &expected);
    }
    let port = "MEMCACHE_HOST_PORT='a:1,b': expected host:port";
    check(&[("MEMCACHE_HOST_PORT", "a:1,b")], port);
    let span = "MEMCACHE_SRV_REFRESH='': expected a time span";
    check(&[SERVERS, ("MEMCACHE_SRV_REFRESH", "")], span);
    let resolver = "TIDEGATE_DNS_SERVERS='10.0.0.1': expected address:port";
    check(&[SERVERS, ("TIDEGATE_DNS_SERVERS", "10.0.0.1")], resolver);
    let tls = [
        SERVERS,
        ("MEMCACHE_TLS", "true"),
        ("MEMCACHE_TLS_CACERT", "/none"),
    ];
    check(&tls, "MEMCACHE_TLS_CACERT='/none': cannot read");
}

#[test]
fn the_backend_says_where_counters_are_and_workflows_are_in_redis() {
    let settings = memcache(&[SERVERS, ("REDIS_URL", "redis:6379")]).unwrap();
    let shown = settings.memcache.unwrap().to_string();
    assert_eq!(shown, "memcached at a:1,b:2");
    assert!(settings.redis.is_none());
    assert!(settings.workflows.unwrap().redis.is_some());
    let default = parse(&[("BACKEND_TYPE", ""), SERVERS]).unwrap();
    assert!(default.memcache.is_none());
    let error = parse(&[("BACKEND_TYPE", "etcd")]).unwrap_err();
    let expected = "expected one of redis, nothing, memcache";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn what_memcached_cannot_do_is_ignored_with_a_warning() {
    let names = ["STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "REDIS_PERSECOND"];
    for name in names {
        let settings = parse(&[
            ("BACKEND_TYPE", "memcache"),
            ("MEMCACHE_HOST_PORT", "a:1"),
            (name, "true"),
        ])
        .unwrap();
        assert!(
            settings.warnings[0].starts_with(&format!("{name}=true has no effect")),
            "{:?}",
            settings.warnings
        );
        assert_eq!(
            settings.limiter.over_limit_keys,
            tidegate_ratelimit::OverLimitKeys::Increment
        );
    }
}
