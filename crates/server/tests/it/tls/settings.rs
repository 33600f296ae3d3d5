//! Mistakes in the settings of TLS: all of them are told at start, with the variable, the file and what to do.

use tidegate::settings::Settings;

use super::authority::borrowed;
use super::{Authority, Folder};

/// What is wrong with these settings, a line each.
fn problems(settings: &[(&str, &str)]) -> Vec<String> {
    let given = settings
        .iter()
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    match Settings::parse(&given) {
        Ok(_) => Vec::new(),
        Err(error) => error
            .to_string()
            .lines()
            .skip(1)
            .map(|line| line.trim().to_owned())
            .collect(),
    }
}

#[track_caller]
fn check(settings: &[(&str, &str)], expected: &[&str]) {
    let told = problems(settings);
    let all = expected
        .iter()
        .all(|text| told.iter().any(|line| line.contains(text)));
    assert!(all && told.len() == expected.len(), "{told:#?}");
}

/// The files of one server: one is right, and each of the others has one mistake.
fn files() -> Folder {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    let (one, other) = (authority.issue("a"), authority.issue("b"));
    folder.put(&one);
    folder.write("other.key", &other.key);
    folder.write("empty", "");
    folder.write("cut.pem", &one.chain[..one.chain.len() / 2]);
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    folder.write("encrypted.key", encrypted);
    folder
}

/// Names of the files of certificate, key and authorities, the name that a client must have, and what is told of them.
const MISTAKES: [([&str; 4], &[&str]); 10] = [
    (["server.pem", "server.key", "", ""], &[]),
    (
        ["", "", "", ""],
        &[
            "GRPC_SERVER_TLS_CERT='': expected the path of a file",
            "GRPC_SERVER_TLS_KEY='': expected",
        ],
    ),
    (
        ["none", "", "", ""],
        &[
            "GRPC_SERVER_TLS_CERT='/",
            "GRPC_SERVER_TLS_KEY='': expected the path",
        ],
    ),
    (
        ["none", "none", "none", ""],
        &[
            "GRPC_SERVER_TLS_CERT='/",
            "GRPC_SERVER_TLS_KEY='/",
            "GRPC_CLIENT_TLS_CACERT='/",
        ],
    ),
    (
        ["server.pem", "other.key", "", ""],
        &["it is not the key of the first certificate in /"],
    ),
    (
        ["empty", "empty", "empty", ""],
        &[
            "it has no certificate in PEM form",
            "it has no private key in PEM form",
            "GRPC_CLIENT_TLS_CACERT='/",
        ],
    ),
    (
        ["cut.pem", "encrypted.key", "", ""],
        &["its PEM form is cut", "the key is encrypted"],
    ),
    (
        ["server.key", "server.pem", "", ""],
        &[
            "it has no certificate in PEM form",
            "it has no private key in PEM form",
        ],
    ),
    (
        ["server.pem", "server.key", "", "envoy"],
        &["GRPC_CLIENT_TLS_SAN='envoy': clients are asked for a certificate only with"],
    ),
    (
        ["server.pem", "server.key", "server.pem", "no name"],
        &["GRPC_CLIENT_TLS_SAN='no name': expected a DNS name"],
    ),
];

#[test]
fn every_mistake_in_the_files_is_told_with_what_to_do() {
    let folder = files();
    let path = |name: &str| match name {
        "" => String::new(),
        name => folder.text(name),
    };
    for ([certificate, key, authorities, san], expected) in MISTAKES {
        let settings = [
            ("GRPC_SERVER_USE_TLS", "true".to_owned()),
            ("GRPC_SERVER_TLS_CERT", path(certificate)),
            ("GRPC_SERVER_TLS_KEY", path(key)),
            ("GRPC_CLIENT_TLS_CACERT", path(authorities)),
            ("GRPC_CLIENT_TLS_SAN", san.to_owned()),
        ];
        check(&borrowed(&settings), expected);
    }
}

#[test]
fn the_api_needs_a_certificate_and_its_key_together() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    folder.put(&authority.issue("a"));
    let (chain, key) = (folder.text("server.pem"), folder.text("server.key"));
    check(
        &[("TIDEGATE_TLS_CERT", &chain), ("TIDEGATE_TLS_KEY", &key)],
        &[],
    );
    check(
        &[("TIDEGATE_TLS_CERT", &chain)],
        &["TIDEGATE_TLS_KEY='': expected the path of a file"],
    );
    check(
        &[("TIDEGATE_TLS_KEY", &key)],
        &["TIDEGATE_TLS_CERT='': expected the path of a file"],
    );
    check(
        &[("TIDEGATE_TLS_CLIENT_CACERT", &chain)],
        &[
            "TIDEGATE_TLS_CERT='': expected the path",
            "TIDEGATE_TLS_KEY='': expected the path",
        ],
    );
}

/// Whoever sets an authority of clients believes that they are checked.
#[test]
fn files_that_have_no_effect_are_told() {
    let parsed =
        Settings::parse(&[("GRPC_CLIENT_TLS_CACERT".to_owned(), "/nowhere".to_owned())].into())
            .unwrap();
    let expected = "GRPC_CLIENT_TLS_CACERT has no effect: the gRPC port speaks plaintext unless GRPC_SERVER_USE_TLS=true";
    assert_eq!(parsed.warnings, [expected]);
}

/// A pipe made the start wait for ever, and so did one in the place of a password.
#[test]
fn what_is_no_regular_file_is_a_mistake_in_every_variable_that_names_a_file() {
    let folder = Folder::new();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(folder.path("pipe"))
            .status()
            .unwrap()
            .success()
    );
    let redis = [("REDIS_URL", "a:1"), ("REDIS_TLS", "true")];
    let memcached = [
        ("BACKEND_TYPE", "memcache"),
        ("MEMCACHE_HOST_PORT", "a:1"),
        ("MEMCACHE_TLS", "true"),
    ];
    let xds = [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "a:1"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
    ];
    let mapper = [("USE_PROMETHEUS", "true")];
    for (variable, others) in [
        ("REDIS_TLS_CACERT", &redis[..]),
        ("REDIS_TLS_CLIENT_CERT", &redis),
        ("REDIS_TLS_CLIENT_KEY", &redis),
        ("TIDEGATE_REDIS_AUTH_FILE", &redis),
        ("MEMCACHE_TLS_CACERT", &memcached),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &xds),
        ("TIDEGATE_TLS_CERT", &[]),
        ("TIDEGATE_TOKENS_FILE", &[]),
        ("PROMETHEUS_MAPPER_YAML", &mapper),
    ] {
        let with = |path: &str| problems(&[others, &[(variable, path)]].concat());
        for (path, expected) in [
            ("pipe", "it is not a regular file"),
            (".", "Is a directory"),
        ] {
            let told = with(&folder.text(path));
            let told: Vec<_> = told
                .iter()
                .filter(|line| line.starts_with(variable))
                .collect();
            assert!(
                told.len() == 1 && told[0].contains(expected),
                "{variable}: {told:?}"
            );
        }
    }
}
