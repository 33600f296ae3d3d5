//! By what acknowledged work of a store could be lost: said when it is found, and shown as long as it is so.

use std::time::Duration;

use tidegate_api::Activity;
use tidegate_workflow::{Durability, Store};
use tokio::time::sleep;
use tracing::warn;

/// How often the nodes of Redis are asked for their settings.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Looks again and again. Calls are acknowledged by so many `replicas`.
pub(super) async fn follow(store: &Store, replicas: u16, activity: &Activity) {
    loop {
        // A store that does not answer is told of elsewhere, and risks what it did.
        if let Ok(found) = store.durability().await {
            log_new(&found, replicas, activity);
        }
        sleep(CHECK_INTERVAL).await;
    }
}

/// Logs the risks that were not known before.
pub(super) fn log_new(found: &Durability, replicas: u16, activity: &Activity) {
    for risk in activity.put_risks(found.risks(replicas)) {
        warn!("{risk}");
    }
}
