//! Reads whole texts.

mod bounds;
mod generated;
mod layouts;
mod shown;
