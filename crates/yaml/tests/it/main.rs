//! Reads whole texts.

mod bounds;
mod generated;
mod layers;
mod layouts;
mod shown;
