//! Functions of the caller that panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tidegate_pipeline::test_util::{RedisCluster, RedisServer};
use tidegate_pipeline::{AddressMap, Arg, Client, Credentials, CredentialsProvider};

use crate::support::{eventually, one, send_one, soon};

/// A panic in the caller's function ended the task that connects: nothing ever connected again, and nobody was told.
#[tokio::test]
async fn a_credentials_provider_that_panics_is_a_failed_connect() {
    let server = RedisServer::start_with(&["--requirepass", "secret"]).await;
    let mut config = server.config();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    config.credentials_provider = Some(CredentialsProvider::new(move || {
        assert!(count.fetch_add(1, SeqCst) >= 2, "the vault is sealed");
        Ok(Credentials {
            username: None,
            password: "secret".to_owned(),
        })
    }));
    let client = Client::new(config).unwrap();
    let error = send_one(&client, "PING", &[])
        .await
        .reply()
        .unwrap_err()
        .to_string();
    assert!(error.contains("the vault is sealed"), "{error}");
    eventually("it connects", async || {
        send_one(&client, "PING", &[]).await.reply().is_ok()
    })
    .await;
}

/// A panic in the caller's function ended the task that learns the topology: the client never knew a node.
#[tokio::test]
async fn an_address_map_that_panics_does_not_end_the_search_for_the_topology() {
    let cluster = RedisCluster::start(3, 0).await;
    let mut config = cluster.config();
    let asked = AtomicUsize::new(0);
    config.address_map = Some(AddressMap::new(move |address| {
        assert!(asked.fetch_add(1, SeqCst) >= 12, "no such address");
        address
    }));
    let client = Client::new(config).unwrap();
    let outcomes = client
        .send(one("INCRBY", &[Arg::Key(b"key"), Arg::Integer(1)]), soon())
        .await;
    assert_eq!(outcomes[0].integer().unwrap(), 1);
}
