//! Encrypted connections to a real server.

use std::time::{Duration, Instant};

use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{
    Address, AddressMap, Arg, Client, ClientCertificate, Config, Connector, NotSent, Outcome, Tls,
    Verification,
};

use crate::support::certificates::{Certificates, trusting};
use crate::support::{eventually, one, send_one, soon};

fn config(address: &Address, tls: &Tls) -> Config {
    let mut config = Config::single(address.clone());
    config.tls = Some(Connector::new(tls).unwrap());
    config
}

async fn refusal(config: Config) -> String {
    match send_one(&Client::new(config).unwrap(), "PING", &[]).await {
        Outcome::NotSent(NotSent::Unavailable { reason, .. }) => reason.to_string(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[tokio::test]
async fn a_trusted_server_is_talked_to_and_others_are_not() {
    let certificates = Certificates::new("127.0.0.1");
    let (_server, address) = certificates.server("no").await;
    let client = Client::new(config(&address, &trusting(Some(&certificates.authority)))).unwrap();
    let value = vec![b'x'; 3 << 20];
    let mut batch = one("PING", &[]);
    for _ in 0..4 {
        batch.unit().command("ECHO", &[Arg::Bytes(&value)]);
    }
    let outcomes = client.send(batch, soon()).await;
    assert_eq!(outcomes[0].bytes().unwrap(), Some(&b"PONG"[..]));
    assert!(
        outcomes[1..]
            .iter()
            .all(|outcome| outcome.bytes().unwrap().map(<[u8]>::len) == Some(value.len()))
    );

    let unknown = refusal(config(&address, &trusting(None))).await;
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");
}

#[tokio::test]
async fn the_name_is_checked_unless_told_otherwise() {
    let certificates = Certificates::new("redis.example");
    let (_server, address) = certificates.server("no").await;
    let mut tls = trusting(Some(&certificates.authority));
    let wrong_name = refusal(config(&address, &tls)).await;
    assert!(wrong_name.contains("not valid for name"), "{wrong_name}");
    tls.verification = Verification::WithoutName;
    let outcome = send_one(&Client::new(config(&address, &tls)).unwrap(), "PING", &[]).await;
    assert_eq!(outcome.bytes().unwrap(), Some(&b"PONG"[..]));

    // The chain is checked all the same.
    tls.authorities = Some(Certificates::new("other").authority);
    let untrusted = refusal(config(&address, &tls)).await;
    assert!(
        untrusted.contains("UnknownIssuer") || untrusted.contains("BadSignature"),
        "{untrusted}"
    );
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_a_server_that_asks() {
    let certificates = Certificates::new("127.0.0.1");
    let (_server, address) = certificates.server("yes").await;
    let mut tls = trusting(Some(&certificates.authority));
    let refused = refusal(config(&address, &tls)).await;
    assert!(refused.contains("ertificate"), "{refused}");
    tls.client = Some(certificates.client.clone());
    let outcome = send_one(&Client::new(config(&address, &tls)).unwrap(), "PING", &[]).await;
    assert_eq!(outcome.bytes().unwrap(), Some(&b"PONG"[..]));
}

#[test]
fn certificates_that_cannot_be_read_are_refused_at_once() {
    let check = |tls: &Tls, expected: &str| {
        let error = Connector::new(tls).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let mut tls = trusting(Some(b"nonsense"));
    check(&tls, "certificate authorities cannot be read");
    tls.authorities = None;
    tls.client = Some(ClientCertificate {
        chain: b"".to_vec(),
        key: b"".to_vec(),
    });
    check(&tls, "client certificate cannot be read");
}

/// A client that runs takes what was renewed for its next connections, and keeps the one that is open.
#[tokio::test]
async fn what_connections_are_encrypted_with_is_replaced_while_a_client_uses_it() {
    let certificates = Certificates::new("127.0.0.1");
    let (server, address) = certificates.server("yes").await;
    let mut tls = trusting(Some(&certificates.authority));
    let config = config(&address, &tls);
    let connector = config.tls.clone().unwrap();
    let client = Client::new(config).unwrap();
    assert!(
        matches!(send_one(&client, "PING", &[]).await, Outcome::NotSent(_)),
        "without a certificate"
    );

    tls.client = Some(certificates.client.clone());
    connector.replace(&Connector::new(&tls).unwrap());
    let answered =
        async || send_one(&client, "PING", &[]).await.bytes().ok().flatten() == Some(&b"PONG"[..]);
    let until = soon();
    while !answered().await {
        assert!(Instant::now() < until, "the certificate is not shown");
    }
    connector.replace(&Connector::new(&Tls::default()).unwrap());
    assert!(answered().await, "the connection that is open stays");
    drop(server);
}

/// A cluster of one server with certificates for localhost, which announces 127.0.0.1, and its port.
async fn announcing(certificates: &Certificates) -> (RedisServer, u16) {
    let more = [
        "--cluster-enabled",
        "yes",
        "--tls-cluster",
        "yes",
        "--cluster-announce-ip",
        "127.0.0.1",
    ];
    let (server, address) = certificates.server_with("no", &more).await;
    assert_eq!(server.raw("CLUSTER ADDSLOTSRANGE 0 16383"), "+OK\r\n");
    eventually("it serves", async || {
        server.raw("CLUSTER INFO").contains("cluster_state:ok")
    })
    .await;
    let Address::Tcp { port, .. } = address else {
        unreachable!()
    };
    (server, port)
}

/// Whether an increment has a reply. Half a second is long enough to know that it has none.
async fn is_served(config: Config, deadline: Instant) -> bool {
    let client = Client::new(config).unwrap();
    let increment = one("INCRBY", &[Arg::Key(b"k"), Arg::Integer(1)]);
    let outcome = client.send(increment, deadline).await.remove(0);
    client.close().await;
    outcome.reply().is_ok()
}

/// node-redis 3256: a cluster announces addresses, and its certificates have names.
#[tokio::test]
async fn a_cluster_that_announces_addresses_is_known_by_the_names_in_its_certificates() {
    let certificates = Certificates::new("localhost");
    let (_server, port) = announcing(&certificates).await;
    let local = move || Address::Tcp {
        host: "localhost".to_owned(),
        port,
    };
    let config = |server_name: Option<&str>| {
        let mut config = Config::cluster(vec![local()]);
        let tls = Connector::new(&trusting(Some(&certificates.authority))).unwrap();
        config.tls = Some(match server_name {
            Some(name) => tls.with_server_name(name).unwrap(),
            None => tls,
        });
        config
    };
    let short = || Instant::now() + Duration::from_millis(500);
    assert!(!is_served(config(None), short()).await);
    assert!(is_served(config(Some("localhost")), soon()).await);
    assert!(!is_served(config(Some("redis.example")), short()).await);

    let mut mapped = config(None);
    mapped.address_map = Some(AddressMap::new(move |address| match address {
        Address::Tcp { host, .. } if host == "127.0.0.1" => local(),
        other => other,
    }));
    assert!(is_served(mapped, soon()).await);
}
