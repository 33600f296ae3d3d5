//! Services of the other threads: rate limit calls on each core, and limits of workflows. Each
//! thread has its own clients of Redis or memcached.

use std::sync::Arc;

use tidegate_api::RateLimits;
use tidegate_ratelimit::{Limiter, RedisStore, Store};

use super::server::Server;
use crate::base::clock;
use crate::net::bounds::MemoryBudget;
use crate::rls::call::{Calls, store_timeout};
use crate::rls::cores::CoreServices;
use crate::rls::grpc::Services;
use crate::rls::grpc::health_service::HealthService;
use crate::rls::overrides::LimitOverrides;
use crate::rls::store::redis::RedisClients;
use crate::workflows::ServerContext;
use crate::workflows::units::{JobUnits, UnitCounters, WorkflowLimits};

impl Server {
    /// Services of a core, with its own clients of Redis or memcached.
    pub(super) fn core_services(
        &self,
        budget: &Arc<MemoryBudget>,
    ) -> impl Fn(usize) -> CoreServices + Clone + Send + 'static {
        let settings = self.settings.clone();
        let supervisor = self.supervisor.clone();
        let health = self.health.clone();
        let metrics = self.metrics.clone();
        let traces = self.traces.clone();
        let budget = budget.clone();
        let limiter = self.limiter_for_thread();
        move |core| {
            let calls = Calls::new(limiter(), metrics.shard(core), traces.clone(), &settings);
            let health = HealthService {
                health: health.clone(),
                supervisor: supervisor.clone(),
                metrics: metrics.shard(core),
            };
            let services = Services::new(calls.clone(), health);
            CoreServices {
                services,
                calls,
                age: settings.connection_age,
                budget: budget.clone(),
                supervisor: supervisor.clone(),
            }
        }
    }

    /// Creates the limiter of another thread, with clients of Redis or memcached on the caller's
    /// runtime.
    fn limiter_for_thread(&self) -> impl Fn() -> Limiter + Clone + Send + Sync + 'static {
        let redis = self.settings.redis.clone();
        let memcached = self.memcached.clone();
        let memory = self.memory.clone();
        let metrics = self.metrics.clone();
        let limiter = self.limiter.clone();
        move || match (&redis, &memcached) {
            (_, Some(memcached)) => {
                let (store, client) = memcached.store();
                metrics.watch_memcache(client);
                limiter.with_store(store)
            }
            (Some(redis), None) => {
                let clients = RedisClients::new(redis)
                    .expect("the client that waited was made of the same settings");
                metrics.watch_redis(clients.main.clone(), clients.per_second.clone());
                limiter.with_store(redis_store(clients))
            }
            (None, None) => limiter.with_store(Store::Memory(memory.clone())),
        }
    }

    /// Context that the threads of the workflows share with the rest of the server.
    pub(super) fn workflow_context(&self) -> ServerContext {
        ServerContext {
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            supervisor: self.supervisor.clone(),
            limits: self.limits(),
            counter_store: self.counter_store(),
            traces: self.traces.clone(),
        }
    }

    /// Rate limits for workflows and their API.
    fn limits(&self) -> WorkflowLimits {
        let limiter = self.limiter_for_thread();
        let metrics = self.metrics.clone();
        let overrides = self.overrides.clone();
        let timeout = store_timeout(&self.settings);
        let counters: UnitCounters = Arc::new(move || {
            JobUnits::new(limiter(), metrics.job_shard(), overrides.clone(), timeout)
        });
        let LimitOverrides { store, limiter } = self.overrides.clone();
        WorkflowLimits {
            counters,
            shown: RateLimits {
                limiter,
                overrides: store,
                clock: clock::now,
            },
            load_status: self.load_status.clone(),
        }
    }
}

pub(super) fn redis_store(clients: RedisClients) -> Store {
    Store::Redis(RedisStore::new(clients.main, clients.per_second))
}
