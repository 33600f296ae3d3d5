//! Random graphs, random events at three servers, faults, and servers and stores that die or lose things: after every step the store must
//! agree with plain rules.

mod chance;
pub(crate) mod check;
mod cost;
mod ground;
mod leases;
mod oracle;
mod step;
mod strike;
mod told;
mod word;
mod world;

use cost::Lines;
use ground::Ground;
use world::World;

/// Steps of one world: enough for workflows to be born, go wrong, be repaired and removed.
const STEPS: usize = 250;
/// After so many steps each, a worker waits for what another server makes.
const WORD: usize = 50;
/// Worlds on a simulated store: ten thousand steps.
const WORLDS: u64 = 40;
/// Worlds on a store outside, where a step takes a hundred times as long.
const WORLDS_OUTSIDE: u64 = 10;
/// A run by hand sets this to thousands: so many worlds on each store.
const MORE: &str = "TIDEGATE_MODEL_WORLDS";

#[expect(
    clippy::disallowed_methods,
    reason = "how long to run is up to whoever starts the tests"
)]
fn worlds(usually: u64) -> u64 {
    std::env::var(MORE).map_or(usually, |worlds| {
        worlds.parse().expect("TIDEGATE_MODEL_WORLDS is a number")
    })
}

/// A run by hand sets this to the seed of the one world that is to be lived in again.
const ONE: &str = "TIDEGATE_MODEL_SEED";

#[expect(
    clippy::disallowed_methods,
    reason = "which world is lived in again is up to whoever starts the tests"
)]
fn seeds(worlds: u64) -> std::ops::Range<u64> {
    match std::env::var(ONE) {
        Ok(seed) => seed
            .parse()
            .map(|seed: u64| seed..seed + 1)
            .expect("TIDEGATE_MODEL_SEED is a number"),
        Err(_) => 0..worlds,
    }
}

fn live<F: Future<Output = Ground>>(worlds: u64, ground: impl Fn() -> F) {
    for seed in seeds(worlds) {
        // The engine draws ids and tokens from this generator.
        fastrand::seed(seed);
        let _lines = tracing::subscriber::set_default(Lines);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut world = World::new(ground().await, seed).await;
            for step in 0..STEPS {
                world.step().await;
                if step % WORD == 0 {
                    world.word_gets_around().await;
                }
            }
            world.comes_to_rest().await;
        });
    }
}

#[test]
fn whatever_happens_the_store_agrees_with_the_rules() {
    live(worlds(WORLDS), async || Ground::simulated());
}

#[test]
fn a_file_that_is_closed_at_any_moment_agrees_with_the_rules() {
    live(worlds(WORLDS_OUTSIDE), async || Ground::sqlite());
}

#[test]
fn a_redis_that_is_killed_at_any_moment_agrees_with_the_rules() {
    live(worlds(WORLDS_OUTSIDE), Ground::redis);
}
