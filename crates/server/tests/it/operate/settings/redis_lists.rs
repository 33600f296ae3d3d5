//! Settings of Redis that is several servers: a cluster, or a primary that sentinels name.

use tidegate::settings::RedisServer;
use tidegate_pipeline::{Parallelism, Servers};

use super::parse;

fn main_redis(pairs: &[(&str, &str)]) -> Result<RedisServer, String> {
    parse(pairs).map(|settings| settings.redis.unwrap().main)
}

/// The password that sentinels are told.
fn sentinel_password(servers: &Servers) -> &str {
    let Servers::Sentinel { credentials, .. } = servers else {
        panic!("{servers:?}")
    };
    &credentials.as_ref().unwrap().password
}

#[test]
fn a_cluster_is_a_list_of_addresses() {
    let cluster = main_redis(&[
        ("REDIS_TYPE", "CLUSTER"),
        ("REDIS_URL", "redis://ada:p@a:1, b:2,[::1]:3"),
        ("REDIS_CLUSTER_PIPELINE_PARALLELISM", "8"),
        ("REDIS_TLS", "true"),
    ]);
    let cluster = cluster.unwrap();
    assert_eq!(cluster.shown, "cluster a:1,b:2,[::1]:3");
    let Servers::Cluster(addresses) = &cluster.config.servers else {
        panic!("{:?}", cluster.config.servers)
    };
    assert_eq!(addresses.len(), 3);
    assert_eq!(cluster.config.parallelism, Parallelism::new(8, 10).unwrap());
    assert_eq!(cluster.config.credentials.unwrap().password, "p");
    assert!(cluster.config.tls.is_some());
}

#[test]
fn sentinels_are_a_list_behind_the_name_of_their_primary() {
    let sentinel = main_redis(&[
        ("REDIS_TYPE", "sentinel"),
        ("REDIS_URL", "mymaster,s1:26379,s2:26379"),
        ("REDIS_SENTINEL_AUTH", "w"),
    ]);
    let sentinel = sentinel.unwrap();
    assert_eq!(sentinel.shown, "mymaster by sentinels s1:26379,s2:26379");
    assert_eq!(sentinel_password(&sentinel.config.servers), "w");
}

#[test]
fn sentinels_and_data_servers_have_passwords_of_their_own() {
    let urls = "mymaster,s1:26379,redis://:of%20sentinels@s2:26379";
    let pairs = [
        ("REDIS_TYPE", "sentinel"),
        ("REDIS_AUTH", "of data"),
        ("REDIS_URL", urls),
        ("REDIS_SENTINEL_AUTH", "w"),
    ];
    for (given, of_sentinels) in [(3, "of sentinels"), (4, "w")] {
        let config = main_redis(&pairs[..given]).unwrap().config;
        assert_eq!(config.credentials.unwrap().password, "of data");
        assert_eq!(sentinel_password(&config.servers), of_sentinels);
    }
    let of_sentinels = [
        ("REDIS_TYPE", "sentinel"),
        ("REDIS_URL", "mymaster,redis://:w@s1:26379"),
    ];
    let config = main_redis(&of_sentinels).unwrap().config;
    assert_eq!(config.credentials, None);
}

#[test]
fn a_wrong_list_is_refused() {
    for (kind, url, expected) in [
        ("sentinel", "mymaster", "Expected master name and a list"),
        ("sentinel", ",s1:1", "Expected master name and a list"),
        ("cluster", "a:1,b", "expected host:port"),
        ("cluster", "/run/redis.sock", "it is a path"),
    ] {
        let error = main_redis(&[("REDIS_TYPE", kind), ("REDIS_URL", url)]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let error = main_redis(&[("REDIS_TYPE", "sentinel"), ("REDIS_URL", "m")]).unwrap_err();
    let whole = "Expected master name and a list of urls for the sentinels";
    assert!(error.contains(whole), "{error}");
}

/// Settings beside the address, wrong values and what is told of them.
const MISTAKES: &str = "\
REDIS_CLUSTER_PIPELINE_PARALLELISM -1 redis cluster pipeline parallelism must be >= 0
REDIS_TLS_CACERT /nowhere.pem cannot read the file
TIDEGATE_REDIS_AUTH_FILE /nowhere cannot read /nowhere
TIDEGATE_REDIS_TLS_SERVER_NAME redis.example:6379 expected a host name or an address, without a port
TIDEGATE_REDIS_ADDRESS_MAP 10.0.0.1 10.0.0.1: expected announced=dialled";

#[test]
fn what_cannot_be_used_with_an_address_is_refused_by_name() {
    for row in MISTAKES.lines() {
        let (name, row) = row.split_once(' ').unwrap();
        let (value, expected) = row.split_once(' ').unwrap();
        let pairs = [("REDIS_URL", "a:1"), ("REDIS_TLS", "true"), (name, value)];
        let error = main_redis(&pairs).unwrap_err();
        assert!(error.contains(name) && error.contains(expected), "{error}");
    }
}
