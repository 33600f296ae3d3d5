//! Sampling decision for traces without a decision of the caller.

/// Samples a fraction of all traces. Servers with equal fractions sample the same traces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampler {
    /// Traces are sampled if the last 63 bits of the id are below this.
    below: u64,
}

impl Sampler {
    /// Creates a sampler for the fraction `share` of all traces, from 0 to 1.
    pub(super) fn new(share: f64) -> Self {
        Self {
            below: (share * (1u64 << 63) as f64) as u64,
        }
    }

    /// Whether to sample the trace with this id, by the algorithm of the OpenTelemetry SDK for Go.
    pub(super) fn takes(self, id: u128) -> bool {
        (id as u64) >> 1 < self.below
    }
}

/// Creates the id of a new trace.
pub(super) fn random_id() -> u128 {
    fastrand::u128(1..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_ids_is_taken() {
        for (share, expected) in [(0.0, 0), (0.25, 25), (0.5, 50), (1.0, 100)] {
            let ids = (0..100u64).map(|step| u128::from(step * (u64::MAX / 100) + u64::MAX / 200));
            assert_eq!(
                ids.filter(|id| Sampler::new(share).takes(*id)).count(),
                expected,
                "{share}"
            );
        }
        assert!(Sampler::new(1.0).takes(u128::MAX));
    }
}
