//! A figure over several turns.

use std::fmt;

/// The median, minimum and maximum of a figure over the turns.
pub(crate) struct Spread {
    min: f64,
    pub(crate) median: f64,
    max: f64,
    values: usize,
}

impl Spread {
    /// Returns `None` without values.
    pub(crate) fn new(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        Some(Self {
            min: *values.first()?,
            median: values[values.len() / 2],
            max: *values.last()?,
            values: values.len(),
        })
    }
}

impl fmt::Display for Spread {
    /// `5.2 (5.0-5.9)`, with as many digits as the precision asks for. A single value stands alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(f, "{:.digits$}", self.median)?;
        if self.values > 1 {
            write!(f, " ({:.digits$}-{:.digits$})", self.min, self.max)?;
        }
        Ok(())
    }
}

/// Returns the value that a share of the values does not exceed. Zero without values.
pub(crate) fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * share) as usize;
    let last = values.len().saturating_sub(1);
    values.get(index.min(last)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_the_ends() {
        let check = |values: &[f64], expected: Option<&str>| {
            let shown = Spread::new(values.to_vec()).map(|spread| format!("{spread:.1}"));
            assert_eq!(shown.as_deref(), expected, "{values:?}");
        };
        check(&[3.0, 1.0, 2.0], Some("2.0 (1.0-3.0)"));
        check(&[5.0], Some("5.0"));
        check(&[5.0, 5.0], Some("5.0 (5.0-5.0)"));
        check(&[], None);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut values = [4.0, 1.0, 3.0, 2.0];
        let found = [0.0, 0.5, 0.99, 1.0].map(|share| percentile(&mut values, share));
        assert_eq!(found, [1.0, 3.0, 4.0, 4.0]);
        assert_eq!(percentile(&mut [], 0.5), 0.0);
    }
}
