//! Fixed windows, aligned to the Unix epoch.

use super::Unit;

/// Whole seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seconds(pub(crate) u64);

impl From<crate::Timestamp> for Seconds {
    fn from(timestamp: crate::Timestamp) -> Self {
        Self(timestamp.0 / 1_000_000)
    }
}

/// The window in which a hit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub(crate) unit: Unit,
    pub(crate) start: Seconds,
}

impl Window {
    /// Returns the window of `unit` that contains `now`.
    pub(crate) fn containing(unit: Unit, now: Seconds) -> Self {
        Self {
            unit,
            start: Seconds(now.0 - now.0 % u64::from(unit.seconds())),
        }
    }

    /// Returns the first second after the window.
    pub(crate) fn end(self) -> Seconds {
        Seconds(self.start.0 + u64::from(self.unit.seconds()))
    }

    /// Returns the whole seconds from `now` to the end of the window, from 1 to its length. `now`
    /// must be in the window.
    pub(crate) fn seconds_left(self, now: Seconds) -> u32 {
        let passed = now.0.saturating_sub(self.start.0);
        self.unit.seconds()
            - u32::try_from(passed)
                .unwrap_or(0)
                .min(self.unit.seconds() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_aligned_to_the_epoch() {
        let table = [
            (Unit::Second, 1234, 1234, 1),
            (Unit::Minute, 1234, 1200, 26),
            (Unit::Minute, 1200, 1200, 60),
            (Unit::Minute, 1259, 1200, 1),
            (Unit::Hour, 1_000_000, 997_200, 800),
            (Unit::Day, 1_000_000, 950_400, 36_800),
            (Unit::Week, 1_000_000, 604_800, 209_600),
            (Unit::Month, 1_000_000, 0, 1_592_000),
            (Unit::Year, 31_536_001, 31_536_000, 31_535_999),
        ];
        for (unit, now, start, left) in table {
            let window = Window::containing(unit, Seconds(now));
            assert_eq!(window.start, Seconds(start), "{unit:?} at {now}");
            assert_eq!(window.seconds_left(Seconds(now)), left, "{unit:?} at {now}");
            assert_eq!(
                window.end(),
                Seconds(now + u64::from(left)),
                "{unit:?} at {now}"
            );
        }
    }
}
