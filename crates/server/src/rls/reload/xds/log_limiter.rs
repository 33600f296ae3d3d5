//! Limits the log lines about versions, however many versions come.

use std::time::{Duration, Instant};

/// Time in which an equal line is not repeated, and in which lines count.
const WINDOW: Duration = Duration::from_secs(60);

/// A limit on log lines of one kind.
#[derive(Debug)]
pub(super) struct LogLimiter {
    max_lines: u32,
    /// The start of the current minute, and the lines in it.
    counted: Option<(Instant, u32)>,
    /// The last line, and its time.
    last: Option<(String, Instant)>,
    suppressed: u64,
}

impl LogLimiter {
    /// At most `max_lines` in a minute.
    pub(super) fn new(max_lines: u32) -> Self {
        Self {
            max_lines,
            counted: None,
            last: None,
            suppressed: 0,
        }
    }

    /// Whether to log `text` now. Returns the number of lines that were suppressed since the last
    /// one.
    pub(super) fn admit(&mut self, text: &str, now: Instant) -> Option<u64> {
        let recent = |at: Instant| now.saturating_duration_since(at) < WINDOW;
        let (since, count) = self
            .counted
            .filter(|(since, _)| recent(*since))
            .unwrap_or((now, 0));
        let is_repeated = self
            .last
            .as_ref()
            .is_some_and(|(last, at)| last == text && recent(*at));
        if is_repeated || count >= self.max_lines {
            self.suppressed += 1;
            return None;
        }
        self.counted = Some((since, count + 1));
        self.last = Some((text.to_owned(), now));
        Some(std::mem::take(&mut self.suppressed))
    }

    /// Forgets the last line, so that an equal one is logged again.
    pub(super) fn forget_last(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute_with_how_often_it_came() {
        let mut lines = LogLimiter::new(10);
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        assert_eq!(lines.admit("a", at(0)), Some(0));
        for second in 1..60 {
            assert_eq!(lines.admit("a", at(second)), None);
        }
        assert_eq!(lines.admit("a", at(60)), Some(59));
        assert_eq!(lines.admit("b", at(61)), Some(0));
        assert_eq!(lines.admit("b", at(62)), None);
        lines.forget_last();
        assert_eq!(lines.admit("b", at(63)), Some(1));
    }

    #[test]
    fn of_many_texts_some_are_said_in_a_minute() {
        let mut lines = LogLimiter::new(10);
        let start = Instant::now();
        let said = (0..50)
            .filter_map(|number: u32| lines.admit(&number.to_string(), start))
            .count();
        assert_eq!(said, 10);
        assert_eq!(lines.admit("x", start + WINDOW), Some(40));
    }
}
