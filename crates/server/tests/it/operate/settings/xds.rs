//! Settings of a management server that sends the configuration.

use tidegate::settings::Settings;

use super::parse;

fn xds(more: &[(&str, &str)]) -> Result<Settings, String> {
    parse(&[&[("CONFIG_TYPE", "GRPC_XDS_SOTW")], more].concat())
}

#[test]
fn a_management_server_is_known_by_the_defaults_of_the_reference() {
    let settings = xds(&[
        ("XDS_CLIENT_BACKOFF_JITTER", "false"),
        ("RUNTIME_ROOT", "/nowhere"),
    ]);
    let settings = settings.unwrap().xds.unwrap();
    assert_eq!(&*settings.node_id, "default");
    assert_eq!(&*settings.peer.host, "localhost");
    assert_eq!(settings.peer.port, 18000);
    assert_eq!(settings.max_message, 4 << 20);
    assert_eq!(settings.retries.variation, 0.0);
    let files = parse(&[("CONFIG_GRPC_XDS_SERVER_URL", "a")]).unwrap();
    assert!(files.xds.is_none(), "files need no server");
}

const MISTAKES: [(&str, &str); 9] = [
    ("CONFIG_GRPC_XDS_SERVER_URL", "http://a:1"),
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "0"),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a b:hunter2"),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/nowhere.pem"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "a b"),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "0"),
    ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "2"),
    ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "-1"),
];

const TOLD: &str = "\
8 settings are wrong
  CONFIG_GRPC_XDS_SERVER_URL='http://a:1': expected host:port
  CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL='0': expected more than 0
  CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS='*****': pair 1 is no header of HTTP/2
  CONFIG_GRPC_XDS_SERVER_TLS_CACERT='/nowhere.pem': cannot read the file: No such file or directory (os error 2)
  CONFIG_GRPC_XDS_SERVER_TLS_SAN='a b': expected a DNS name or an IP address
  XDS_CLIENT_BACKOFF_INITIAL_INTERVAL='0': expected more than 0
  XDS_CLIENT_BACKOFF_RANDOM_FACTOR='2': expected a number from 0 to 1
  XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES='-1': expected a number from 0 to 2147483647";

#[test]
fn mistakes_about_a_management_server_are_reported_at_once() {
    assert_eq!(xds(&MISTAKES).unwrap_err(), TOLD);
}

#[test]
fn headers_and_passwords_for_a_management_server_are_secret() {
    for headers in [
        "authorization=Bearer hunter2",
        "hunter2",
        "a:b,hunter2",
        "a:b:hunter2",
        "a:b,hunter2:c d:e",
    ] {
        let error = xds(&[("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", headers)]).unwrap_err();
        assert!(error.contains("expected pairs such as"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    for address in ["hunter2@a:1", "ada:hunter2@a:1", "http://ada:hunter2@a:1"] {
        let error = xds(&[("CONFIG_GRPC_XDS_SERVER_URL", address)]).unwrap_err();
        assert!(error.contains("*****@a:1': expected host:port"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
