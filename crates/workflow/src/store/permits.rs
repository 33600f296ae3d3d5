//! Permits of concurrency limits, a semaphore per limit. The holders of a limit's permits are
//! leases, each until a time. A holder that dies without releasing its permit loses it at that
//! time.

use std::time::Duration;

use super::{ServerId, Store, StoreError};
use crate::model::{LeaseRef, Timestamp};

/// Time for which a permit outlives its lease: the end of a lease is measured by an estimated
/// clock, and the job may run until then.
const PERMIT_GRACE: Duration = Duration::from_secs(1);

/// Leases that request permits of one limit, in the order in which they get them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitRequest<'a> {
    /// The name of the limit, at most 1 KiB.
    pub limit: &'a str,
    /// Number of permits that the limit has.
    pub permits: u32,
    /// The leases that request a permit.
    pub leases: &'a [LeaseRef],
}

/// The permits that were granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitGrant {
    /// Number of leases that have a permit now: the first ones of the request.
    pub granted: usize,
    /// Number of permits that are free.
    pub free: u32,
    /// If none is free: the time after which one is, unless its holder extends it. `None`
    /// otherwise.
    pub next_expiry: Option<Duration>,
}

/// The outcome of extending a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitExtension {
    /// The permit was extended.
    Extended,
    /// The lease has no permit any more. It gets no new one, because another lease may have taken
    /// it.
    Expired,
}

/// The holders of a limit's permits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PermitHolders {
    /// Number of holders.
    pub number: u32,
    /// The holders whose permits expire first, each with that time.
    pub first: Vec<(LeaseRef, Timestamp)>,
}

/// The state of a limit after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PermitCount {
    /// Number of the requested permits that were granted.
    pub(super) granted: usize,
    /// Number of permits in use.
    pub(super) in_use: u32,
    /// Time until the first permit expires. `None` if it was not requested.
    pub(super) next_expiry: Option<Duration>,
}

impl PermitCount {
    fn into_grant(self, permits: u32) -> PermitGrant {
        let free = permits.saturating_sub(self.in_use);
        PermitGrant {
            granted: self.granted,
            free,
            next_expiry: self.next_expiry.filter(|_| free == 0),
        }
    }
}

/// Time for which a permit is held for a lease of this duration.
pub(super) fn permit_duration(lease: Duration) -> Duration {
    lease.saturating_add(PERMIT_GRACE)
}

impl Store {
    /// Acquires permits for leases: never more than a limit has, and none for a lease behind one
    /// that got none. A lease that has a permit keeps it, even if the limit has fewer permits now.
    ///
    /// The lease must end at `now + lease` or earlier, and its permit is held for a second longer.
    /// In Redis that time begins when Redis receives the call, and `now` only counts where `TIME`
    /// is forbidden. So read `now` first, then acquire the permit, then the lease. A server that
    /// did not get all permits is notified when others release some (`StoreEvent::Released`).
    ///
    /// # Errors
    /// Each limit has its own error. With [`StoreError::Unknown`], any of its leases may have a
    /// permit and should release it.
    ///
    /// # Cancellation
    /// When the future is dropped, any of the leases may have a permit.
    pub async fn acquire_permits(
        &self,
        requests: &[PermitRequest<'_>],
        by: ServerId,
        now: Timestamp,
        lease: Duration,
    ) -> Vec<Result<PermitGrant, StoreError>> {
        if requests.is_empty() {
            return Vec::new();
        }
        let count = each_answer!(self, requests.len(), store => store.acquire_permits(requests, by, now, lease).await);
        requests
            .iter()
            .zip(count)
            .map(|(request, count)| count.map(|count| count.into_grant(request.permits)))
            .collect()
    }

    /// Extends the permits of leases to this duration from now, and never shortens one. An expired
    /// permit is not granted again: it outlives its lease by a second, so the lease has expired,
    /// too.
    ///
    /// # Errors
    /// Each permit has its own error: it may be extended or not.
    ///
    /// # Cancellation
    /// When the future is dropped, any permit may be extended.
    pub async fn extend_permits(
        &self,
        permits: &[(&str, LeaseRef)],
        now: Timestamp,
        lease: Duration,
    ) -> Vec<Result<PermitExtension, StoreError>> {
        if permits.is_empty() {
            return Vec::new();
        }
        each_answer!(self, permits.len(), store => store.extend_permits(permits, now, lease).await)
    }

    /// Releases the permits of leases, some of which may have expired. Returns for each the number
    /// of permits of its limit that are still in use. Other servers that wait for a permit of the
    /// limit are notified.
    ///
    /// # Errors
    /// Each permit has its own error. It may still be held, and expires by itself.
    ///
    /// # Cancellation
    /// When the future is dropped, any permit may be released.
    pub async fn release_permits(
        &self,
        permits: &[(&str, LeaseRef)],
        by: ServerId,
        now: Timestamp,
    ) -> Vec<Result<u32, StoreError>> {
        if permits.is_empty() {
            return Vec::new();
        }
        each_answer!(self, permits.len(), store => store.release_permits(permits, by, now).await)
    }

    /// The holders of each limit's permits: their number, and at most `limit` of them.
    ///
    /// # Errors
    /// Each limit has its own error.
    pub async fn permit_holders(
        &self,
        limits: &[&str],
        now: Timestamp,
        limit: usize,
    ) -> Vec<Result<PermitHolders, StoreError>> {
        if limits.is_empty() {
            return Vec::new();
        }
        each_answer!(self, limits.len(), store => store.permit_holders(limits, now, limit).await)
    }
}

#[cfg(test)]
mod with_redis {
    use tidegate_pipeline::Client;
    use tidegate_pipeline::test_util::RedisServer;

    use super::*;
    use crate::model::{JobIndex, Partition, WorkflowId};
    use crate::store::change_notice::release::Release;
    use crate::store::{RedisOptions, RedisStore, SimulatedStore, StoreEvent, Subscription, Topic};

    const ONE: ServerId = ServerId(1);
    const OTHER: ServerId = ServerId(2);
    const THIRD: ServerId = ServerId(3);

    fn now() -> Timestamp {
        Timestamp::from_micros(1_795_000_000_000_000)
    }

    fn lease(number: u32) -> LeaseRef {
        let workflow = WorkflowId::new(now(), Partition(0), 1);
        LeaseRef {
            workflow,
            job: JobIndex(number),
            token: 1,
        }
    }

    async fn hold(store: &Store, limit: &str, number: u32, by: ServerId) -> usize {
        let request = PermitRequest {
            limit,
            permits: 1,
            leases: &[lease(number)],
        };
        store
            .acquire_permits(&[request], by, now(), Duration::from_secs(60))
            .await
            .remove(0)
            .unwrap()
            .granted
    }

    async fn release(store: &Store, limit: &str, number: u32, by: ServerId) {
        assert_eq!(
            store
                .release_permits(&[(limit, lease(number))], by, now())
                .await,
            [Ok(0)]
        );
    }

    async fn listen(store: &Store) -> Subscription {
        let mut subscription = store.subscribe().unwrap();
        let topics: Vec<Topic> = store.all_partitions().map(Topic::Partition).collect();
        subscription.set_topics(&topics);
        for _ in topics {
            assert!(matches!(
                subscription.next().await,
                Some(StoreEvent::Subscribed(_))
            ));
        }
        subscription
    }

    /// Only servers that wait are notified, and only of releases by other servers. Notifications
    /// keep their order.
    async fn check(store: Store) {
        let mut subscription = listen(&store).await;
        // No server waits.
        assert_eq!(hold(&store, "a", 1, ONE).await, 1);
        release(&store, "a", 1, ONE).await;
        // The releasing server itself waits.
        assert_eq!(hold(&store, "b", 1, ONE).await, 1);
        assert_eq!(hold(&store, "b", 2, ONE).await, 0);
        release(&store, "b", 1, ONE).await;
        // Another server waits for the first release, but not for the second one.
        assert_eq!(hold(&store, "c", 1, ONE).await, 1);
        assert_eq!(hold(&store, "c", 2, OTHER).await, 0);
        assert_eq!(
            store.release_permits(&[("c", lease(9))], ONE, now()).await,
            [Ok(1)],
            "this one has no place"
        );
        release(&store, "c", 1, ONE).await;
        assert_eq!(hold(&store, "c", 2, OTHER).await, 1);
        release(&store, "c", 2, OTHER).await;
        // One of several waiting servers is another one.
        assert_eq!(hold(&store, "d", 1, ONE).await, 1);
        for by in [ONE, THIRD, ONE] {
            assert_eq!(hold(&store, "d", 2, by).await, 0);
        }
        release(&store, "d", 1, ONE).await;
        // The server that took the last permit knows that none is left, and waits for it wherever
        // its job ends.
        assert_eq!(hold(&store, "e", 1, OTHER).await, 1);
        release(&store, "e", 1, ONE).await;
        for limit in ["c", "d", "e"] {
            let event = subscription.next().await;
            assert_eq!(
                event,
                Some(StoreEvent::Released(Release {
                    by: ONE,
                    limit: limit.to_owned()
                }))
            );
        }
    }

    #[tokio::test]
    async fn a_release_notifies_other_servers_that_wait() {
        check(Store::Simulated(SimulatedStore::new(4))).await;
        let redis = RedisServer::start().await;
        let options = RedisOptions::new("t:", 4, Duration::from_secs(5)).unwrap();
        check(Store::Redis(
            RedisStore::open(Client::new(redis.config()).unwrap(), options)
                .await
                .unwrap(),
        ))
        .await;
    }
}
