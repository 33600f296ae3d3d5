//! A figure over several turns.

use std::fmt;

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
        Some(Self {
            least: *values.first()?,
            median: values[values.len() / 2],
            most: *values.last()?,
        })
    }
}

impl fmt::Display for Spread {
    /// `5.2 (5.0-5.9)`, with as many digits as the precision asks for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        write!(
            f,
            "{:.digits$} ({:.digits$}-{:.digits$})",
            self.median, self.least, self.most
        )
    }
}

/// The median of figures with the least and the most; a dash without figures.
pub(crate) fn spread(values: impl IntoIterator<Item = f64>, digits: usize) -> String {
    let spread = Spread::new(values.into_iter().collect());
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{spread:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_the_ends() {
        let spread = |values: &[f64]| Spread::new(values.to_vec());
        assert_eq!(
            spread(&[3.0, 1.0, 2.0]),
            Some(Spread {
                least: 1.0,
                median: 2.0,
                most: 3.0
            })
        );
        assert_eq!(
            spread(&[5.0]),
            Some(Spread {
                least: 5.0,
                median: 5.0,
                most: 5.0
            })
        );
        assert_eq!(spread(&[]), None);
        assert_eq!(
            format!("{:.1}", spread(&[3.0, 1.0, 2.0]).unwrap()),
            "2.0 (1.0-3.0)"
        );
    }
}
