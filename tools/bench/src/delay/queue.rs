//! One direction of a proxied connection: bytes that were read and are not due yet.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Instant;

/// Maximum number of queued bytes: 16 MiB are more than loopback carries in 10 ms.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// A queue of bytes with the time of each chunk.
#[derive(Default)]
pub(super) struct DelayQueue {
    bytes: VecDeque<u8>,
    /// Release time and length of each chunk that is not due, oldest first.
    chunks: VecDeque<(Instant, usize)>,
    /// Bytes at the front that are due.
    due: usize,
    end: Option<Instant>,
}

impl DelayQueue {
    /// Returns the number of bytes that may still be read.
    pub(super) fn room(&self) -> usize {
        MAX_QUEUED_BYTES.saturating_sub(self.bytes.len())
    }

    /// Appends bytes that are due at `release`, or with the previous bytes if that is later.
    /// Returns the time.
    pub(super) fn push(&mut self, read: &[u8], release: Instant) -> Instant {
        let release = self
            .chunks
            .back()
            .map_or(release, |(before, _)| release.max(*before));
        self.bytes.extend(read);
        self.chunks.push_back((release, read.len()));
        release
    }

    /// Records that the source has ended. The end is sent to the other side at `release`, after all
    /// bytes are written.
    pub(super) fn end(&mut self, release: Instant) {
        self.end.get_or_insert(release);
    }

    /// Returns whether the source has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns whether the end may be sent to the other side.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.bytes.is_empty() && self.end.is_some_and(|end| end <= now)
    }

    /// Returns all bytes that are due, for one write.
    pub(super) fn due(&mut self, now: Instant) -> [IoSlice<'_>; 2] {
        while let Some((_, length)) = self.chunks.front().filter(|(release, _)| *release <= now) {
            self.due += length;
            self.chunks.pop_front();
        }
        let (front, back) = self.bytes.as_slices();
        let first = front.len().min(self.due);
        [
            IoSlice::new(&front[..first]),
            IoSlice::new(&back[..self.due - first]),
        ]
    }

    /// Removes bytes that were written.
    pub(super) fn written(&mut self, count: usize) {
        self.due -= count;
        self.bytes.drain(..count);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn due(queue: &mut DelayQueue, now: Instant) -> Vec<u8> {
        let bytes: Vec<u8> = queue
            .due(now)
            .iter()
            .flat_map(|slice| slice.to_vec())
            .collect();
        queue.written(bytes.len());
        bytes
    }

    #[test]
    fn chunks_that_are_due_are_one_write() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut queue = DelayQueue::default();
        queue.push(b"a", at(1));
        queue.push(b"b", at(2));
        queue.push(b"c", at(5));
        assert_eq!(due(&mut queue, at(0)), b"");
        assert_eq!(due(&mut queue, at(2)), b"ab");
        assert_eq!(due(&mut queue, at(4)), b"");
        assert_eq!(due(&mut queue, at(9)), b"c");
    }

    #[test]
    fn a_shorter_delay_does_not_overtake() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut queue = DelayQueue::default();
        queue.push(b"slow", at(10));
        assert_eq!(queue.push(b"fast", at(1)), at(10));
        assert_eq!(due(&mut queue, at(9)), b"");
        assert_eq!(due(&mut queue, at(10)), b"slowfast");
    }

    #[test]
    fn what_could_not_be_written_stays_first() {
        let start = Instant::now();
        let mut queue = DelayQueue::default();
        queue.push(b"abc", start);
        assert_eq!(queue.due(start)[0].len(), 3);
        queue.written(1);
        queue.push(b"d", start);
        queue.end(start);
        assert!(!queue.is_over(start));
        assert_eq!(due(&mut queue, start), b"bcd");
        assert!(queue.is_over(start));
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut queue = DelayQueue::default();
        queue.push(&vec![0; MAX_QUEUED_BYTES - 1], Instant::now());
        assert_eq!(queue.room(), 1);
        queue.push(&[0], Instant::now());
        assert_eq!(queue.room(), 0);
    }
}
