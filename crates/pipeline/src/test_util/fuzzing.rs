//! The decoders of external bytes and the splitter of batches, for fuzzers. Not part of the crate's
//! interface.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::batch::Batch;
use crate::call::{Call, CallGroup, Unanswered};
use crate::client::Route;
use crate::cluster::View;
use crate::cluster::view;
use crate::config::{Address, Config};
use crate::link::ClientContext;
use crate::node::Node;
use crate::outcome::{NotSent, Outcome};
use crate::wire::{Decoder, Protocol, Reply};

/// Decodes `pieces`, which arrive in sequence, and returns their frames and the number of bytes
/// that are left over.
///
/// # Errors
/// The stream is malformed; earlier frames are still returned.
pub fn decode<'a>(
    protocol: Protocol,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Outcome>, Result<usize, String>) {
    let mut decoder = Decoder::new(protocol);
    let mut buffer = BytesMut::new();
    let mut outcomes = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        let decoded = decoder.decode(&mut buffer, |answer| {
            outcomes.push(Outcome::from_answer(answer));
            Ok(())
        });
        if let Err(error) = decoded {
            return (outcomes, Err(error));
        }
    }
    (outcomes, Ok(buffer.len()))
}

/// Returns the number of slots with an owner after `reply` to CLUSTER SLOTS. `None` if it is
/// refused.
#[must_use]
pub fn covered_slots(reply: &Reply, responder: &Address) -> Option<usize> {
    View::read(reply, responder).map(|view| view.covered())
}

/// Returns the address that a redirect names.
#[must_use]
pub fn endpoint(text: &str, responder: &Address) -> Option<Address> {
    view::endpoint(text, responder)
}

/// Nodes between which batches are split. Nothing is sent to them.
#[derive(Debug)]
pub struct Splitter {
    nodes: Vec<Arc<Node>>,
    /// Nodes belong to a runtime, though they run no tasks here.
    _runtime: Runtime,
}

/// A group of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitGroup {
    /// Index of its node.
    pub node: usize,
    /// Its units, in order.
    pub units: Vec<u32>,
    /// Number of its commands.
    pub commands: usize,
    /// Number of their bytes.
    pub bytes: usize,
}

impl Splitter {
    /// Creates `nodes` nodes.
    ///
    /// # Panics
    /// Panics if no runtime can be made.
    #[must_use]
    pub fn new(nodes: u16) -> Self {
        let runtime = Builder::new_current_thread()
            .build()
            .expect("a runtime without drivers needs no resources");
        let inside = runtime.enter();
        let address = |port| Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port,
        };
        let context = ClientContext::new(Config::single(address(1)))
            .expect("the default configuration is valid");
        let nodes = (1..=nodes)
            .map(|port| Node::new(address(port), &context))
            .collect();
        drop(inside);
        Self {
            nodes,
            _runtime: runtime,
        }
    }

    /// Splits a batch whose unit `unit` belongs to node `owner(unit)`. Each group is then answered
    /// with the indices of its commands in the batch. Returns the groups, and the outcomes for the
    /// caller.
    pub fn split(
        &self,
        batch: Batch,
        owner: impl Fn(u32) -> Option<usize>,
    ) -> (Vec<SplitGroup>, Vec<Outcome>) {
        let route = Route::split(&batch, |unit| owner(unit).map(|node| &self.nodes[node]));
        let groups = route
            .groups
            .iter()
            .zip(&route.nodes)
            .map(|(units, node)| SplitGroup {
                node: self
                    .nodes
                    .iter()
                    .position(|other| Arc::ptr_eq(other, node))
                    .unwrap_or(usize::MAX),
                units: units.ranges.iter().cloned().flatten().collect(),
                commands: units.load.commands,
                bytes: units.load.bytes,
            });
        let groups = groups.collect();
        let call = Call::new(batch, route.groups, Instant::now());
        // The order is reversed, because groups may be answered in any order.
        for index in (0..call.groups.len()).rev() {
            let ranges = call.groups[index].ranges.iter();
            let commands = ranges.flat_map(|units| call.batch.commands_of(units.clone()));
            let outcomes = commands
                .map(|command| Outcome::Reply(Reply::Integer(command as i64)))
                .collect();
            CallGroup::new(&call, index).finish(outcomes);
        }
        let outcomes = call.leave(|_, _: Unanswered| Outcome::NotSent(NotSent::Skipped));
        (groups, outcomes)
    }
}
