//! Drawings of graphs: where jobs and lines go, and the pictures made of that.

pub mod layout;
pub mod picture;
