//! The readers of foreign bytes, for fuzzers. No part of the crate's interface.

use bytes::BytesMut;

use crate::cluster::view::{self, View};
use crate::config::address::Address;
use crate::outcome::Outcome;
use crate::wire::reply::{Protocol, Reply};
use crate::wire::resp;

/// Decodes `pieces`, which arrive one after the other, and returns what they say and how many bytes are left over.
///
/// # Errors
/// The stream is malformed; what came before is returned all the same.
pub fn decode<'a>(protocol: Protocol, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Outcome>, Result<usize, String>) {
    let (mut buffer, mut outcomes) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        let decoded = resp::decode(protocol, &mut buffer, |answer| {
            outcomes.push(Outcome::of(answer));
            Ok(())
        });
        if let Err(error) = decoded {
            return (outcomes, Err(error));
        }
    }
    (outcomes, Ok(buffer.len()))
}

/// How many slots have an owner after `reply` to CLUSTER SLOTS; none when it is refused.
#[must_use]
pub fn covered_slots(reply: &Reply, asked: &Address) -> Option<usize> {
    View::read(reply, asked).map(|view| view.covered())
}

/// The address that a redirect names.
#[must_use]
pub fn endpoint(text: &str, asked: &Address) -> Option<Address> {
    view::endpoint(text, asked)
}
