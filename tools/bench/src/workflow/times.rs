//! How long many requests of one kind took.

/// Percentiles of times, in milliseconds.
pub(crate) struct Times(Vec<f64>);

impl Times {
    pub(crate) fn new(mut milliseconds: Vec<f64>) -> Self {
        milliseconds.sort_by(f64::total_cmp);
        Self(milliseconds)
    }

    /// The time that a share of the measurements stays within; not a number without measurements.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let place = (self.0.len() as f64 * share) as usize;
        self.0
            .get(place.min(self.0.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    }
}
