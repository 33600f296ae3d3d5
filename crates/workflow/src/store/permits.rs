//! Places in limits of how many jobs are at work at once. Each limit is a set of holders: leases, each until a moment. Whoever dies without
//! giving a place back loses it at that moment.

use std::time::Duration;

use super::change_notice::ServerId;
use super::error::StoreError;
use super::{Store, each_of};
use crate::codec::lease::LeaseRef;
use crate::time::Timestamp;

/// How much longer than its lease a place is held: the end of a lease is told by a clock that is only estimated, and the job may be at work
/// until then.
const SLACK: Duration = Duration::from_secs(1);

/// Leases that want places in a set, the first ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitRequest<'a> {
    /// The name of the set, at most 1 KiB.
    pub set: &'a str,
    /// How many places it has.
    pub most: u32,
    /// Who wants one.
    pub leases: &'a [LeaseRef],
}

/// Which places were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitGrant {
    /// So many of the leases have a place now: the first ones.
    pub granted: usize,
    /// So many places are left.
    pub free: u32,
    /// When none is left: after this time one is free, unless its holder prolongs it.
    pub next: Option<Duration>,
}

/// What became of a place that was to last longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    /// It does.
    Yes,
    /// The lease has no place any more. It is not given another one, which others may have taken.
    Gone,
}

/// Who has places.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PermitHolders {
    /// How many there are.
    pub number: u32,
    /// The first ones to lose their places, and when.
    pub first: Vec<(LeaseRef, Timestamp)>,
}

/// What became of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PermitCount {
    /// So many of those who wanted a place have one.
    pub(super) granted: usize,
    /// How many places are taken.
    pub(super) number: u32,
    /// The time until the first holder loses its place, if it was asked for.
    pub(super) next: Option<Duration>,
}

impl PermitCount {
    fn held(self, most: u32) -> PermitGrant {
        let free = most.saturating_sub(self.number);
        PermitGrant {
            granted: self.granted,
            free,
            next: self.next.filter(|_| free == 0),
        }
    }
}

/// How long a place is held for a lease of this time.
pub(super) fn term(lease: Duration) -> Duration {
    lease.saturating_add(SLACK)
}

impl Store {
    /// Gives places to leases: never more than a set has, and to nobody behind one who got none. Who has a place keeps it, also if it asks
    /// again or there are fewer places now.
    ///
    /// The lease must end at `now + lease` or earlier, and its place is held for a second longer. In Redis that time begins when Redis gets
    /// the call, and `now` only counts where `TIME` is not permitted. So take `now` first, then a place, then the lease. A server that did
    /// not get all it wanted hears of places that others release (`StoreEvent::Released`).
    ///
    /// # Errors
    /// Of each set on its own. With [`StoreError::Unknown`], any of its leases may have a place, and should release it.
    ///
    /// # Cancellation
    /// When the future is dropped, any of the leases may have a place.
    pub async fn hold(
        &self,
        holds: &[PermitRequest<'_>],
        by: ServerId,
        now: Timestamp,
        lease: Duration,
    ) -> Vec<Result<PermitGrant, StoreError>> {
        if holds.is_empty() {
            return Vec::new();
        }
        let stood = match self {
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => each_of(holds.len(), store.hold(holds, by, now, lease).await),
            Self::Sqlite(store) => each_of(holds.len(), store.hold(holds, now, lease).await),
            Self::Redis(store) => store.hold(holds, by, now, lease).await,
        };
        holds
            .iter()
            .zip(stood)
            .map(|(hold, stood)| stood.map(|stood| stood.held(hold.most)))
            .collect()
    }

    /// Lets leases have their places in sets for this time from now, and never for less than before. A place that is gone stays so: it outlives
    /// its lease by a second, so the lease is over, too.
    ///
    /// # Errors
    /// Of each place on its own: it may be as before, or prolonged.
    ///
    /// # Cancellation
    /// When the future is dropped, any of them may be prolonged.
    pub async fn extend_holds(
        &self,
        places: &[(&str, LeaseRef)],
        now: Timestamp,
        lease: Duration,
    ) -> Vec<Result<Extended, StoreError>> {
        if places.is_empty() {
            return Vec::new();
        }
        match self {
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => {
                each_of(places.len(), store.extend_holds(places, now, lease).await)
            }
            Self::Sqlite(store) => {
                each_of(places.len(), store.extend_holds(places, now, lease).await)
            }
            Self::Redis(store) => store.extend_holds(places, now, lease).await,
        }
    }

    /// Takes places from leases, which may have lost them already. Returns for each how many holders its set has left. Other servers that
    /// wait for a place of a set hear of it.
    ///
    /// # Errors
    /// Of each place on its own. It may still be held, and is free when its time is over.
    ///
    /// # Cancellation
    /// When the future is dropped, any of them may be released.
    pub async fn release(
        &self,
        places: &[(&str, LeaseRef)],
        by: ServerId,
        now: Timestamp,
    ) -> Vec<Result<u32, StoreError>> {
        if places.is_empty() {
            return Vec::new();
        }
        match self {
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => each_of(places.len(), store.release(places, by, now).await),
            Self::Sqlite(store) => each_of(places.len(), store.release(places, now).await),
            Self::Redis(store) => store.release(places, by, now).await,
        }
    }

    /// Who has places in each set: at most `limit` of them, and how many there are.
    ///
    /// # Errors
    /// Of each set on its own.
    pub async fn holders(
        &self,
        sets: &[&str],
        now: Timestamp,
        limit: usize,
    ) -> Vec<Result<PermitHolders, StoreError>> {
        if sets.is_empty() {
            return Vec::new();
        }
        match self {
            #[cfg(feature = "test-util")]
            Self::Simulated(store) => each_of(sets.len(), store.holders(sets, now, limit).await),
            Self::Sqlite(store) => each_of(sets.len(), store.holders(sets, now, limit).await),
            Self::Redis(store) => store.holders(sets, now, limit).await,
        }
    }
}

#[cfg(test)]
mod with_redis {
    use tidegate_pipeline::Client;
    use tidegate_pipeline::test_util::RedisServer;

    use super::*;
    use crate::id::{JobIndex, Partition, WorkflowId};
    use crate::store::change_notice::Audience;
    use crate::store::redis::{RedisOptions, RedisStore};
    use crate::store::release::Release;
    use crate::store::simulated::SimulatedStore;
    use crate::store::subscription::{StoreEvent, Subscription, Topic};

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

    async fn hold(store: &Store, set: &str, number: u32, by: ServerId) -> usize {
        let hold = PermitRequest {
            set,
            most: 1,
            leases: &[lease(number)],
        };
        store
            .hold(&[hold], by, now(), Duration::from_secs(60))
            .await
            .remove(0)
            .unwrap()
            .granted
    }

    async fn release(store: &Store, set: &str, number: u32, by: ServerId) {
        assert_eq!(
            store.release(&[(set, lease(number))], by, now()).await,
            [Ok(0)]
        );
    }

    async fn listen(store: &Store) -> Subscription {
        let mut ears = store.listen().unwrap();
        let topics: Vec<Topic> = store
            .all_partitions()
            .map(|at| Topic::Partition(at, Audience::Waiting))
            .collect();
        ears.listen_to(&topics);
        for _ in topics {
            assert!(matches!(ears.next().await, Some(StoreEvent::Subscribed(_))));
        }
        ears
    }

    /// Only those who wait are told, and by nobody but another server. What is told comes in order.
    async fn check(store: Store) {
        let mut ears = listen(&store).await;
        // Nobody waits.
        assert_eq!(hold(&store, "a", 1, ONE).await, 1);
        release(&store, "a", 1, ONE).await;
        // The same server waits.
        assert_eq!(hold(&store, "b", 1, ONE).await, 1);
        assert_eq!(hold(&store, "b", 2, ONE).await, 0);
        release(&store, "b", 1, ONE).await;
        // Another one waits; but not any more when there is another release.
        assert_eq!(hold(&store, "c", 1, ONE).await, 1);
        assert_eq!(hold(&store, "c", 2, OTHER).await, 0);
        assert_eq!(
            store.release(&[("c", lease(9))], ONE, now()).await,
            [Ok(1)],
            "this one has no place"
        );
        release(&store, "c", 1, ONE).await;
        assert_eq!(hold(&store, "c", 2, OTHER).await, 1);
        release(&store, "c", 2, OTHER).await;
        // Of several, one is another.
        assert_eq!(hold(&store, "d", 1, ONE).await, 1);
        for by in [ONE, THIRD, ONE] {
            assert_eq!(hold(&store, "d", 2, by).await, 0);
        }
        release(&store, "d", 1, ONE).await;
        // Who took the last one knows that none is left, and waits for it wherever its job ends.
        assert_eq!(hold(&store, "e", 1, OTHER).await, 1);
        release(&store, "e", 1, ONE).await;
        for set in ["c", "d", "e"] {
            let heard = ears.next().await;
            assert_eq!(
                heard,
                Some(StoreEvent::Released(Release {
                    by: ONE,
                    set: set.to_owned()
                }))
            );
        }
    }

    #[tokio::test]
    async fn a_release_is_told_to_other_servers_that_wait() {
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
