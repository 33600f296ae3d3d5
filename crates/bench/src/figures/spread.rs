//! A figure over several turns.

use std::fmt;

use serde_json::{Value, json};

/// The middle and the ends of a figure over the turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// None without values.
    pub(crate) fn new(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        Some(Self { least: *values.first()?, median: values[values.len() / 2], most: *values.last()? })
    }

    pub(crate) fn to_json(self) -> Value {
        json!({ "least": self.least, "median": self.median, "most": self.most })
    }
}

impl fmt::Display for Spread {
    /// `5.2 (5.0-5.9)`, with as many digits as the precision asks for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(f, "{:.digits$} ({:.digits$}-{:.digits$})", self.median, self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_the_ends() {
        let spread = |values: &[f64]| Spread::new(values.to_vec());
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some(Spread { least: 1.0, median: 2.0, most: 3.0 }));
        assert_eq!(spread(&[5.0]), Some(Spread { least: 5.0, median: 5.0, most: 5.0 }));
        assert_eq!(spread(&[]), None);
        assert_eq!(format!("{:.1}", spread(&[3.0, 1.0, 2.0]).unwrap()), "2.0 (1.0-3.0)");
    }
}
