//! Units of limits that calls were made with. When a unit was taken is known from two moments only, one before and one after it.

use std::collections::BTreeMap;

/// The windows of a limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// In microseconds.
    pub(super) window: u64,
    pub(super) units: usize,
}

/// A unit, taken at some moment of these two or between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) earliest: u64,
    pub(super) latest: u64,
}

impl Rule {
    /// Gives each unit a window in which it may have been taken, so that no window has more units than it may have. Returns how many each
    /// window has, or the unit for which there is none: then some windows had too many for sure.
    pub(super) fn windows(&self, units: &[Unit]) -> Result<BTreeMap<u64, usize>, Unit> {
        let mut units = units.to_vec();
        // Those that can wait least go first, each into the first window with room. If that fails, nothing else succeeds.
        units.sort_unstable_by_key(|unit| (unit.latest / self.window, unit.earliest));
        let mut windows = BTreeMap::new();
        for unit in units {
            let mut may = unit.earliest / self.window..=unit.latest / self.window;
            let window = may.find(|window| {
                windows
                    .get(window)
                    .is_none_or(|number| *number < self.units)
            });
            *windows.entry(window.ok_or(unit)?).or_default() += 1;
        }
        Ok(windows)
    }

    /// The most units that were taken in one window for sure.
    pub(super) fn most(&self, units: &[Unit]) -> usize {
        let mut windows: BTreeMap<u64, usize> = BTreeMap::new();
        for unit in units
            .iter()
            .filter(|unit| unit.earliest / self.window == unit.latest / self.window)
        {
            *windows.entry(unit.earliest / self.window).or_default() += 1;
        }
        windows.into_values().max().unwrap_or(0)
    }
}

#[test]
fn units_that_cannot_all_have_been_within_their_windows_are_found() {
    let rule = Rule {
        name: "two",
        window: 10,
        units: 2,
    };
    let unit = |(earliest, latest)| Unit { earliest, latest };
    for (spans, expected) in [
        (&[(0, 9), (5, 5), (10, 11)][..], Ok(vec![(0, 2), (1, 1)])),
        (&[(0, 9), (5, 5), (9, 9)], Err((9, 9))),
        // Some may have been taken in the second window, but not so many.
        (
            &[(9, 12), (9, 12), (9, 9), (1, 2)],
            Ok(vec![(0, 2), (1, 2)]),
        ),
        (&[(9, 12), (9, 12), (8, 12), (9, 9), (1, 2)], Err((9, 12))),
    ] {
        let units: Vec<Unit> = spans.iter().copied().map(unit).collect();
        let windows = rule
            .windows(&units)
            .map(|windows| windows.into_iter().collect());
        assert_eq!(windows, expected.map_err(unit), "{spans:?}");
    }
}
