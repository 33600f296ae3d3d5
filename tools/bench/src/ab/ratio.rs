//! The ratio of two builds over pairs of turns, and its confidence interval.

/// Two-sided 95 % quantiles of Student's t for one degree of freedom and more, from the usual
/// tables.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// Maximum number of pairs that [`Ratio::new`] knows a quantile for.
pub(super) const MAX_PAIRS: u32 = STUDENT.len() as u32 + 1;

/// The geometric mean of B/A over the pairs, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub(super) mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Whether B is as good as A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// B is certainly not worse by more than the margin.
    NoWorse,
    /// B is certainly worse by more than the margin.
    Worse,
    /// The interval includes the margin: more turns are needed.
    Open,
}

impl Ratio {
    /// Returns `None` for fewer than two or more than [`MAX_PAIRS`] pairs, or if a value is not
    /// above zero.
    pub(super) fn new(a: &[f64], b: &[f64]) -> Option<Self> {
        let quantile = STUDENT.get(a.len().checked_sub(2)?)?;
        if a.len() != b.len() || a.iter().chain(b).any(|value| *value <= 0.0) {
            return None;
        }
        // Ratios multiply, so the mean is that of their logarithms.
        let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (b / a).ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let half = quantile * (variance / count).sqrt();
        Some(Self {
            mean: mean.exp(),
            low: (mean - half).exp(),
            high: (mean + half).exp(),
        })
    }

    /// Judges a ratio of costs, where less is better. A rate needs [`Ratio::inverse`].
    pub(super) fn judge(self, margin: f64) -> Verdict {
        if self.high <= 1.0 + margin {
            Verdict::NoWorse
        } else if self.low > 1.0 + margin {
            Verdict::Worse
        } else {
            Verdict::Open
        }
    }

    /// Returns the ratio A/B.
    pub(super) fn inverse(self) -> Self {
        Self {
            mean: 1.0 / self.mean,
            low: 1.0 / self.high,
            high: 1.0 / self.low,
        }
    }
}

impl Verdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NoWorse => "no worse",
            Self::Worse => "worse",
            Self::Open => "open",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(a: &[f64], b: &[f64]) -> Ratio {
        Ratio::new(a, b).unwrap()
    }

    #[test]
    fn the_interval_is_that_of_students_t() {
        // Logarithms -0.1, 0.0 and 0.1: mean 0, standard error 0.1 / sqrt(3), quantile 4.303.
        let b = [(-0.1_f64).exp(), 2.0, 3.0 * 0.1_f64.exp()];
        let Ratio { mean, low, high } = ratio(&[1.0, 2.0, 3.0], &b);
        let half = 4.303 * 0.1 / 3.0_f64.sqrt();
        for (got, wanted) in [(mean, 1.0), (low, (-half).exp()), (high, half.exp())] {
            assert!((got - wanted).abs() < 1e-9, "{got} instead of {wanted}");
        }
        let all_half = Ratio {
            mean: 0.5,
            low: 0.5,
            high: 0.5,
        };
        assert_eq!(ratio(&[4.0, 8.0], &[2.0, 4.0]), all_half);
    }

    #[test]
    fn what_cannot_be_judged_has_no_ratio() {
        let ones = |count| vec![1.0; count];
        assert_eq!(Ratio::new(&ones(1), &ones(1)), None);
        assert_eq!(Ratio::new(&ones(2), &ones(3)), None);
        assert_eq!(Ratio::new(&[1.0, 0.0], &ones(2)), None);
        let most = MAX_PAIRS as usize;
        assert_eq!(Ratio::new(&ones(most + 1), &ones(most + 1)), None);
        assert!(Ratio::new(&ones(most), &ones(most)).is_some());
    }

    #[test]
    fn a_verdict_needs_the_whole_interval_on_one_side_of_the_margin() {
        let judge = |low, high| {
            let mean = 1.0;
            Ratio { mean, low, high }.judge(0.03)
        };
        assert_eq!(judge(0.9, 1.03), Verdict::NoWorse);
        assert_eq!(judge(1.04, 1.05), Verdict::Worse);
        assert_eq!(judge(1.0, 1.04), Verdict::Open);
        let slower = Ratio {
            mean: 0.8,
            low: 0.75,
            high: 0.85,
        };
        let verdicts = (slower.judge(0.03), slower.inverse().judge(0.03));
        assert_eq!(verdicts, (Verdict::NoWorse, Verdict::Worse));
    }
}
