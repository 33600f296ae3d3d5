//! What the tests share.

pub(crate) mod certificates;
pub(crate) mod crowd;
pub(crate) mod cut;
pub(crate) mod fake;
pub(crate) mod load;
pub(crate) mod proxy;

use std::time::{Duration, Instant};

use tidegate_pipeline::{Arg, Batch, Client, Outcome};

/// Long enough for any step that should succeed, on a busy machine.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

pub(crate) fn one(name: &'static str, args: &[Arg<'_>]) -> Batch {
    let mut batch = Batch::new();
    batch.unit().command(name, args);
    batch
}

pub(crate) async fn send_one(client: &Client, name: &'static str, args: &[Arg<'_>]) -> Outcome {
    let mut outcomes = client.send(one(name, args), soon()).await;
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// Waits until `condition` holds; fails the test when it does not within ten seconds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = soon();
    while !condition().await {
        assert!(Instant::now() < deadline, "did not come true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
