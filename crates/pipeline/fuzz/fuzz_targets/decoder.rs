//! Replies in arbitrary pieces, beside another decoder.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/it/generated/foreign.rs"]
#[expect(dead_code, reason = "the other targets use the rest")]
mod foreign;

fuzz_target!(|data: &[u8]| foreign::check_decoder(data));
