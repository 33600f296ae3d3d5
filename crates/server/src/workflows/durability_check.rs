//! Check for risks that acknowledged work of the store is lost. A risk is logged when it appears,
//! and shown while it lasts.

use std::time::Duration;

use tidegate_api::Activity;
use tidegate_workflow::{Durability, Store};
use tokio::time::sleep;
use tracing::warn;

/// Interval between two requests for the settings of the Redis nodes.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Checks the durability repeatedly. Calls are acknowledged after `replicas` replicas have the
/// write.
pub(super) async fn follow(store: &Store, replicas: u16, activity: &Activity) {
    loop {
        // A store that does not answer is logged by `store_probe`, and its known risks stay.
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
