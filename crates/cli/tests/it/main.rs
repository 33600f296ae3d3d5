//! The sources of the crate.

mod layers;
