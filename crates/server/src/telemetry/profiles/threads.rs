//! CPU times of threads, as the kernel counts them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

/// Folder of the kernel with the threads of this process.
const THREADS_FOLDER: &str = "/proc/self/task";

/// A thread with its times since its start, or within a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ThreadSample {
    id: u64,
    pub(super) name: String,
    /// State as in the output of `ps`.
    state: char,
    /// Nanoseconds on a core.
    pub(super) running: u64,
    /// Nanoseconds in which the thread was runnable without a core.
    pub(super) waiting: u64,
    /// Clock ticks in user and in kernel mode. They divide `running` between both.
    ticks: [u64; 2],
}

impl ThreadSample {
    /// Time on a core, in user and in kernel mode.
    pub(super) fn modes(&self) -> [(&'static str, u64); 2] {
        let [user, kernel] = self.ticks.map(u128::from);
        // A thread without a full tick counts as user mode.
        let in_kernel = (u128::from(self.running) * kernel)
            .checked_div(user + kernel)
            .unwrap_or(0) as u64;
        [("user", self.running - in_kernel), ("kernel", in_kernel)]
    }

    /// Name of a mode of this thread. Lists without stacks show this name alone.
    pub(super) fn part(&self, mode: &str) -> String {
        format!("{} ({mode})", self.name)
    }
}

/// Samples all threads, except those that end meanwhile.
pub(super) fn sample_threads() -> Vec<ThreadSample> {
    let tick = 1_000_000_000 / clock_ticks_per_second().max(1);
    let folder = fs::read_dir(THREADS_FOLDER).into_iter().flatten().flatten();
    let mut threads: Vec<_> = folder
        .filter_map(|entry| {
            let read = |name| fs::read_to_string(entry.path().join(name));
            let mut thread = read_stat(&read("stat").ok()?)?;
            match read("schedstat").ok().as_deref().and_then(read_schedstat) {
                Some([running, waiting]) => (thread.running, thread.waiting) = (running, waiting),
                // Some sandboxes provide only ticks.
                None => thread.running = thread.ticks.iter().sum::<u64>().saturating_mul(tick),
            }
            Some(thread)
        })
        .collect();
    threads.sort_by_key(|thread| thread.id);
    threads
}

/// Times of the threads between two samples.
pub(super) fn difference(before: &[ThreadSample], after: Vec<ThreadSample>) -> Vec<ThreadSample> {
    let before: HashMap<_, _> = before.iter().map(|thread| (thread.id, thread)).collect();
    let spent = |mut thread: ThreadSample| {
        if let Some(before) = before.get(&thread.id) {
            thread.running = thread.running.saturating_sub(before.running);
            thread.waiting = thread.waiting.saturating_sub(before.waiting);
            for (ticks, before) in thread.ticks.iter_mut().zip(before.ticks) {
                *ticks = ticks.saturating_sub(before);
            }
        }
        thread
    };
    after.into_iter().map(spent).collect()
}

/// The threads as text.
pub(super) fn page() -> String {
    let threads = sample_threads();
    let mut page = format!("threads: {}\n\n", threads.len());
    for thread in threads {
        let [(_, user), (_, kernel)] = thread.modes();
        let [running, user, kernel, waiting] = [thread.running, user, kernel, thread.waiting]
            .map(|nanos| Duration::from_nanos(nanos).as_secs_f64());
        let id = thread.id;
        let name = &thread.name;
        let state = thread.state;
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "{id} {name} {state}: ran {running:.3} s (user {user:.3} s, kernel {kernel:.3} s), waited {waiting:.3} s for a core"
        );
    }
    page
}

/// Parses `ID (NAME) STATE ..`. The name may contain any characters.
fn read_stat(text: &str) -> Option<ThreadSample> {
    let (id, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<_> = rest.split(' ').collect();
    // Index from the state, which is field 3: `utime` is field 14, `stime` 15.
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(ThreadSample {
        id: id.parse().ok()?,
        name: name.replace([';', '\n'], "_"),
        state: fields.first()?.chars().next()?,
        ticks: [number(11)?, number(12)?],
        ..ThreadSample::default()
    })
}

/// Parses the nanoseconds on a core, and those of waiting for one.
fn read_schedstat(text: &str) -> Option<[u64; 2]> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read_whatever_the_name() {
        let line = "71 (a) b;c) R 1 1 1 0 -1 4194304 137 0 0 0 30 10 0 0 20 0 1 0 84064";
        let thread = read_stat(line).unwrap();
        assert_eq!(
            (thread.id, &*thread.name, thread.state, thread.ticks),
            (71, "a) b_c", 'R', [30, 10])
        );
        for broken in [
            "",
            "71",
            "71 (a",
            "71 (a) R 1",
            "x (a) R 1 1 1 0 -1 4194304 137 0 0 0 30 10 0",
        ] {
            assert_eq!(read_stat(broken), None, "{broken}");
        }
        assert_eq!(read_schedstat("0 977264 1\n"), Some([0, 977_264]));
        assert_eq!(read_schedstat("0"), None);
    }

    #[test]
    fn a_profile_is_the_difference_of_two_looks() {
        let thread = |id, running, ticks| ThreadSample {
            id,
            running,
            waiting: running,
            ticks,
            ..ThreadSample::default()
        };
        let spent = difference(
            &[thread(1, 100, [1, 1]), thread(2, 5, [0, 0])],
            vec![thread(1, 500, [4, 2]), thread(3, 7, [0, 0])],
        );
        assert_eq!(spent, [thread(1, 400, [3, 1]), thread(3, 7, [0, 0])]);
        assert_eq!(spent[0].modes(), [("user", 300), ("kernel", 100)]);
        assert_eq!(spent[1].modes(), [("user", 7), ("kernel", 0)]);
    }

    #[test]
    fn this_thread_is_seen_at_work() {
        let before = sample_threads();
        let mut product = 1u64;
        let own = || {
            fs::read_to_string("/proc/thread-self/schedstat")
                .ok()
                .as_deref()
                .and_then(read_schedstat)
                .unwrap()[0]
        };
        let until = own() + 50_000_000;
        while own() < until {
            (0..10_000).for_each(|number| product = product.wrapping_mul(number | 1));
        }
        assert_ne!(product, 0);
        let longest = difference(&before, sample_threads())
            .into_iter()
            .map(|thread| thread.running)
            .max();
        assert!(longest.unwrap() >= 50_000_000, "{longest:?}");
        assert!(page().contains("ran 0."), "{}", page());
    }
}
