//! Limits of jobs: what they cost, and what many jobs and many keys do to others.

mod behind;
pub(super) mod cost;
mod crew;
mod fairness;
mod mixed;
pub(super) mod scale;
mod tenants;
mod weights;
