//! What once went wrong.

use tidegate_pipeline::{Arg, Batch, Client};

use crate::fake::FakeCluster;
use crate::support::{eventually, soon};

/// The books of a node that left the cluster were closed while its connections still were being closed: each such node
/// left a connection in the statistics that nobody had.
#[tokio::test]
async fn a_node_that_left_takes_its_connections_out_of_the_books() {
    let cluster = FakeCluster::start(3, 1).await;
    let client = Client::new(cluster.config()).unwrap();
    let mut batch = Batch::new();
    for index in 0..30 {
        batch.unit().command("EXPIRE", &[Arg::Key(format!("key-{index}").as_bytes()), Arg::Integer(1)]);
    }
    assert!(client.send(batch.clone(), soon()).await.iter().all(|outcome| outcome.reply().is_ok()));
    assert_eq!(client.stats().connections, 3);
    cluster.hand_over(2, 0);
    assert!(client.send(batch, soon()).await.iter().all(|outcome| outcome.reply().is_ok()));
    eventually("the connection is closed and counted", async || client.stats().connections == 2).await;
    let stats = client.stats();
    assert_eq!((stats.opened, stats.closed), (3, 1), "{stats:?}");
}
