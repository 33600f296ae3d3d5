//! Bounds the groups of a batch that are sent at once.

use std::num::NonZero;

use super::ConfigError;

/// Maximum number of groups of one batch that are in progress. All commands for one node are one
/// group, whatever their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism(NonZero<usize>);

impl Parallelism {
    /// One group at a time: after a group with a failed command the rest is not sent.
    pub const SERIAL: Self = Self(NonZero::<usize>::MIN);
    /// All groups at once.
    pub const UNBOUNDED: Self = Self(NonZero::<usize>::MAX);

    /// Creates a bound of `setting` groups and at most `pool_size`; 0 means `pool_size`. A pool
    /// size below 1 counts as 1.
    ///
    /// # Errors
    /// A negative setting.
    pub fn new(setting: i64, pool_size: usize) -> Result<Self, ConfigError> {
        let pool_size = NonZero::new(pool_size).unwrap_or(NonZero::<usize>::MIN);
        let setting =
            usize::try_from(setting).map_err(|_| ConfigError::NegativeParallelism { setting })?;
        Ok(Self(
            NonZero::new(setting).map_or(pool_size, |setting| setting.min(pool_size)),
        ))
    }

    pub(crate) fn groups(self) -> usize {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallelism_follows_the_pool_size() {
        let check = |setting, pool_size, expected| {
            assert_eq!(
                Parallelism::new(setting, pool_size).unwrap().groups(),
                expected,
                "({setting}, {pool_size})"
            );
        };
        check(1, 10, 1);
        check(0, 10, 10);
        check(8, 10, 8);
        check(20, 10, 10);
        check(0, 0, 1);
        let refused = Parallelism::new(-1, 10).unwrap_err().to_string();
        assert!(
            refused.starts_with("redis cluster pipeline parallelism must be >= 0"),
            "{refused}"
        );
    }
}
