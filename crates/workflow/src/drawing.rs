//! Drawings of graphs: layouts, and pictures that are drawn from them.

pub mod layout;
pub mod picture;
