//! Random graphs, random events, faults, and servers that die: after every step the store must agree with plain rules.

pub(crate) mod check;
mod oracle;
mod step;
mod told;
mod world;

use fastrand::Rng;

use world::World;

/// Steps of one world: enough for workflows to be born, go wrong, be repaired and removed.
const STEPS: usize = 250;
const WORLDS: u64 = 40;
/// A run by hand sets this to thousands.
const MORE: &str = "TIDEGATE_MODEL_WORLDS";

#[expect(clippy::disallowed_methods, reason = "how long to run is up to whoever starts the tests")]
fn worlds() -> u64 {
    std::env::var(MORE).map_or(WORLDS, |worlds| worlds.parse().expect("TIDEGATE_MODEL_WORLDS is a number"))
}

#[test]
fn whatever_happens_the_store_agrees_with_the_rules() {
    for seed in 0..worlds() {
        // The engine draws ids and tokens from this generator.
        fastrand::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(live(seed));
    }
}

async fn live(seed: u64) {
    let mut world = World::new(Rng::with_seed(seed), seed).await;
    for _ in 0..STEPS {
        world.step().await;
    }
    world.comes_to_rest().await;
}
