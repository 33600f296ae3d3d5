//! A made-up format 0. Tests migrate it, because no release has written an earlier format yet.

use super::{Format, RecordKind, Upgrade};

/// Differs from format 1 in every byte of every record, and differently for each kind of record.
pub(super) const FORMAT_0: Upgrade = Upgrade {
    from: Format(0),
    rewrite: |kind, record| Ok(shifted(record, shift(kind).wrapping_neg())),
    rewrite_back: |kind, record| shifted(record, shift(kind)),
};

fn shift(kind: RecordKind) -> u8 {
    1 + kind as u8
}

fn shifted(record: &[u8], by: u8) -> Vec<u8> {
    record.iter().map(|byte| byte.wrapping_add(by)).collect()
}
