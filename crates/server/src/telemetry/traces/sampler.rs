//! Which traces without a caller's decision are taken.

/// Takes a share of all traces: every server with the same share takes the same ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampler {
    /// Ids below this are taken, by their last 63 bits.
    below: u64,
}

impl Sampler {
    /// Takes `share` of all traces, from 0 to 1.
    pub(super) fn new(share: f64) -> Self {
        Self {
            below: (share * (1u64 << 63) as f64) as u64,
        }
    }

    /// Whether the trace with this id is taken, as the OpenTelemetry SDK for Go decides.
    pub(super) fn takes(self, id: u128) -> bool {
        (id as u64) >> 1 < self.below
    }
}

/// The id of a new trace.
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
