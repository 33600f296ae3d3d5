//! Batches that are split by nodes and put together again.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tidegate_pipeline::test_util::fuzzing::Splitter;

#[path = "../../tests/it/generated/splitter.rs"]
mod splitter;

static SPLITTER: LazyLock<Splitter> = LazyLock::new(|| Splitter::new(splitter::NODES));

fuzz_target!(|data: &[u8]| splitter::check_splitter(&SPLITTER, data));
