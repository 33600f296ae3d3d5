//! Lines of the log about versions: few, however many versions come.

use std::time::{Duration, Instant};

/// How often the same is said, and how long lines count.
const SPAN: Duration = Duration::from_secs(60);

/// Lines of one kind.
#[derive(Debug)]
pub(super) struct Lines {
    most: u32,
    /// Since when they are counted, and how many there were.
    counted: Option<(Instant, u32)>,
    /// What was said last, and when.
    last: Option<(String, Instant)>,
    suppressed: u64,
}

impl Lines {
    /// At most so many in a minute.
    pub(super) fn new(most: u32) -> Self {
        Self {
            most,
            counted: None,
            last: None,
            suppressed: 0,
        }
    }

    /// Whether to say `text` now. It comes with how much was not said since the last line.
    pub(super) fn admit(&mut self, text: &str, now: Instant) -> Option<u64> {
        let recent = |at: Instant| now.saturating_duration_since(at) < SPAN;
        let (since, count) = self
            .counted
            .filter(|(since, _)| recent(*since))
            .unwrap_or((now, 0));
        let again = self
            .last
            .as_ref()
            .is_some_and(|(last, at)| last == text && recent(*at));
        if again || count >= self.most {
            self.suppressed += 1;
            return None;
        }
        self.counted = Some((since, count + 1));
        self.last = Some((text.to_owned(), now));
        Some(std::mem::take(&mut self.suppressed))
    }

    /// What was said last is news when it comes again.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute_with_how_often_it_came() {
        let mut lines = Lines::new(10);
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        assert_eq!(lines.admit("a", at(0)), Some(0));
        for second in 1..60 {
            assert_eq!(lines.admit("a", at(second)), None);
        }
        assert_eq!(lines.admit("a", at(60)), Some(59));
        assert_eq!(lines.admit("b", at(61)), Some(0));
        assert_eq!(lines.admit("b", at(62)), None);
        lines.forget();
        assert_eq!(lines.admit("b", at(63)), Some(1));
    }

    #[test]
    fn of_many_texts_some_are_said_in_a_minute() {
        let mut lines = Lines::new(10);
        let start = Instant::now();
        let said = (0..50)
            .filter_map(|number: u32| lines.admit(&number.to_string(), start))
            .count();
        assert_eq!(said, 10);
        assert_eq!(lines.admit("x", start + SPAN), Some(40));
    }
}
