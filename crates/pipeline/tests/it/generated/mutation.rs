//! A bounded fuzzer: seeds are mutated by a random generator whose seed is fixed, so that every run sees the same inputs.
//!
//! `cargo fuzz` searches longer and is led by coverage. It needs a nightly compiler; this one runs in every test run.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;

/// No input grows beyond this: what is interesting is in the first frames.
const LARGEST_INPUT: usize = 4 * 1024;

/// Most mutations of one input.
const MUTATIONS: usize = 6;

/// Bytes with a meaning in RESP, and the ends of the range.
const TELLING_BYTES: &[u8] = b"\r\n:+-$*_,#!=(%~>|?;.0919\x00\x7f\xff";

/// Numbers at the bounds of what is read.
const TELLING_NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "127",
    "128",
    "16383",
    "16384",
    "65536",
    "999999999999999999",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
];

/// Checks every entry of `corpus` as it is, then `cases` mutations. A failure prints the seed of its input, and the input.
pub(crate) fn fuzz(corpus: &[&[u8]], cases: u64, check: impl Fn(&[u8])) {
    for (at, input) in corpus.iter().enumerate() {
        attempt(&format!("entry {at} of the corpus"), input, &check);
    }
    for seed in 0..cases {
        attempt(&format!("seed {seed}"), &input(corpus, seed), &check);
    }
}

/// The input of a seed: to see a failure again, check this one alone.
pub(crate) fn input(corpus: &[&[u8]], seed: u64) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    let mut input = corpus[rng.usize(..corpus.len())].to_vec();
    for _ in 0..rng.usize(1..=MUTATIONS) {
        mutate(&mut input, corpus, &mut rng);
        input.truncate(LARGEST_INPUT);
    }
    input
}

fn attempt(name: &str, input: &[u8], check: impl Fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        eprintln!("{name} fails: b\"{}\"", input.escape_ascii());
        resume_unwind(panic);
    }
}

fn mutate(input: &mut Vec<u8>, corpus: &[&[u8]], rng: &mut Rng) {
    let at = rng.usize(..=input.len());
    let end = (at + rng.usize(..=8)).min(input.len());
    match rng.u8(..8) {
        0 if at < input.len() => input[at] ^= 1 << rng.u8(..8),
        1 if at < input.len() => input[at] = TELLING_BYTES[rng.usize(..TELLING_BYTES.len())],
        2 => input.insert(at, TELLING_BYTES[rng.usize(..TELLING_BYTES.len())]),
        3 => drop(input.drain(at..end)),
        4 => {
            let again = input[at..end].repeat(rng.usize(1..4));
            input.splice(at..at, again);
        }
        5 => {
            let other = corpus[rng.usize(..corpus.len())];
            input.splice(at.., other[rng.usize(..=other.len())..].iter().copied());
        }
        6 => replace_number(
            input,
            at,
            TELLING_NUMBERS[rng.usize(..TELLING_NUMBERS.len())],
        ),
        _ => input.truncate(at),
    }
}

/// Puts `number` in the place of the digits at or behind `at`.
fn replace_number(input: &mut Vec<u8>, at: usize, number: &str) {
    let Some(start) = input[at..]
        .iter()
        .position(u8::is_ascii_digit)
        .map(|offset| at + offset)
    else {
        return;
    };
    let digits = input[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    input.splice(start..start + digits, number.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_input() {
        let corpus: [&[u8]; 2] = [b":1\r\n", b"$3\r\nabc\r\n"];
        let inputs: Vec<_> = (0..100).map(|seed| input(&corpus, seed)).collect();
        assert_eq!(
            inputs,
            (0..100)
                .map(|seed| input(&corpus, seed))
                .collect::<Vec<_>>()
        );
        assert!(inputs.iter().any(|input| !corpus.contains(&&input[..])));
    }

    #[test]
    fn a_failing_input_fails_the_test() {
        let failed = catch_unwind(|| fuzz(&[b"ab"], 50, |input| assert!(input.contains(&b'a'))));
        assert!(failed.is_err());
    }
}
