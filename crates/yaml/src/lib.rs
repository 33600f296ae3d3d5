//! Reads the first document of a YAML file into nodes that know their position.
//!
//! The rules are those of YAML 1.1 in `gopkg.in/yaml.v2`, with which envoyproxy/ratelimit reads its
//! files: every layout that it loads is loaded here to the same values. The text goes through three
//! steps: bytes to characters (`text`), characters to tokens (`scan`), tokens to nodes (`tree`). The
//! caller's [`Schema`] decides the type of a scalar.
//!
//! Time and memory are linear in the size of the text. The number of values that aliases stand for
//! is bounded, because a short text could make a large value of them.

mod error;
mod node;
mod scan;
mod text;
mod tree;

pub use error::{Error, Problem};
pub use node::{Content, Node, Pair, Position};
pub use tree::{Document, Form, Schema, outer_names, parse};
