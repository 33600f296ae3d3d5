//! Draws the key of a descriptor from the distinct keys.

use clap::ValueEnum;

/// How keys are drawn from the set `0..count`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Distribution {
    /// All keys have the same frequency.
    Uniform,
    /// Key `i` in proportion to `1 / (i + 1)^exponent`: a few hot keys and a long tail.
    Zipf,
    /// 0, 1, 2 and so on, then again from 0: each key occurs once in `count` draws.
    Sequence,
}

/// A stream of keys.
pub(crate) enum KeyStream {
    Uniform {
        count: u32,
        random: fastrand::Rng,
    },
    Zipf {
        table: AliasTable,
        random: fastrand::Rng,
    },
    Sequence {
        count: u32,
        next: u32,
    },
}

impl KeyStream {
    /// Creates the stream 0, 1, 2 and so on, which repeats after `count` keys.
    pub(crate) fn sequence(count: u32) -> Self {
        Self::Sequence { count, next: 0 }
    }

    /// Creates a stream of `count` keys (at least one). One seed gives one stream.
    pub(crate) fn new(distribution: Distribution, count: u32, exponent: f64, seed: u64) -> Self {
        let count = count.max(1);
        let random = fastrand::Rng::with_seed(seed);
        match distribution {
            Distribution::Uniform => Self::Uniform { count, random },
            Distribution::Zipf => Self::Zipf {
                table: AliasTable::zipf(count, exponent),
                random,
            },
            Distribution::Sequence => Self::sequence(count),
        }
    }

    pub(crate) fn draw(&mut self) -> u32 {
        match self {
            Self::Uniform { count, random } => random.u32(0..*count),
            Self::Zipf { table, random } => table.draw(random),
            Self::Sequence { count, next } => {
                let key = *next;
                *next = (key + 1) % *count;
                key
            }
        }
    }
}

/// Walker's alias method: any discrete distribution in constant time a draw.
///
/// Cell `i` is drawn uniformly, then keeps its own key with probability `keep[i]` and gives
/// `alias[i]` otherwise.
pub(crate) struct AliasTable {
    keep: Vec<f64>,
    alias: Vec<u32>,
}

impl AliasTable {
    fn zipf(count: u32, exponent: f64) -> Self {
        let weights: Vec<f64> = (1..=count)
            .map(|rank| f64::from(rank).powf(-exponent))
            .collect();
        Self::new(&weights)
    }

    fn new(weights: &[f64]) -> Self {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut keep: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let mut alias: Vec<u32> = (0..weights.len() as u32).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            alias.iter().partition(|cell| keep[**cell as usize] < 1.0);
        while let (Some(under), Some(over)) = (small.pop(), large.pop()) {
            alias[under as usize] = over;
            keep[over as usize] -= 1.0 - keep[under as usize];
            if keep[over as usize] < 1.0 {
                small.push(over)
            } else {
                large.push(over)
            }
        }
        // The remaining cells differ from 1 by rounding only.
        for cell in small.into_iter().chain(large) {
            keep[cell as usize] = 1.0;
        }
        Self { keep, alias }
    }

    fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        let cell = random.usize(0..self.keep.len());
        if random.f64() < self.keep[cell] {
            cell as u32
        } else {
            self.alias[cell]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u32 = 200_000;

    /// Draws many keys and compares how often each came with what was wanted, to two points in a
    /// hundred.
    fn check(distribution: Distribution, exponent: f64, wanted: &[f64]) {
        let mut keys = KeyStream::new(distribution, wanted.len() as u32, exponent, 7);
        let mut seen = vec![0_u32; wanted.len()];
        for _ in 0..DRAWS {
            seen[keys.draw() as usize] += 1;
        }
        for (key, (seen, wanted)) in seen.iter().zip(wanted).enumerate() {
            let share = f64::from(*seen) / f64::from(DRAWS);
            assert!(
                (share - wanted).abs() < 0.02,
                "{distribution:?} key {key}: {share} instead of {wanted}"
            );
        }
    }

    #[test]
    fn keys_are_as_frequent_as_in_the_distribution() {
        check(Distribution::Uniform, 0.0, &[0.25, 0.25, 0.25, 0.25]);
        check(Distribution::Sequence, 0.0, &[0.5, 0.5]);
        check(
            Distribution::Zipf,
            1.0,
            &[12.0 / 25.0, 6.0 / 25.0, 4.0 / 25.0, 3.0 / 25.0],
        );
        check(Distribution::Zipf, 2.0, &[0.8, 0.2]);
        check(Distribution::Zipf, 0.0, &[0.5, 0.5]);
        check(Distribution::Uniform, 0.0, &[1.0]);
    }

    #[test]
    fn a_sequence_uses_every_key_once_before_it_repeats() {
        let mut keys = KeyStream::sequence(3);
        let drawn: Vec<u32> = (0..7).map(|_| keys.draw()).collect();
        assert_eq!(drawn, [0, 1, 2, 0, 1, 2, 0]);
    }
}
