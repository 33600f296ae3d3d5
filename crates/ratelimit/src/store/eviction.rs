//! Selects the counters that a full store drops.
//!
//! A client that can vary a value can create any number of counters, and with more calls any number
//! that used a given share of their limit. So the largest group loses counters: first the limit
//! with the most counters, until all limits have the same number. Of one limit, it is the class of
//! counters that used about the same share of it. A flood is the largest group of its kind, and
//! alone loses counters.

use super::Charge;

/// Number of buckets of limits. A limit is identified by eight bits of a hash; limits with equal
/// bits share the quota of one.
const LIMIT_BUCKETS: usize = 256;
/// Number of classes of use. Class 0 is at the limit or over it. Every second class is half of the
/// one before, and the last is below a 30,000th.
const CLASSES: usize = 32;

/// Data of a counter that its eviction is decided by, in three bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct EvictionClass {
    limit: u8,
    /// The upper half of a 32-bit float.
    requests_per_unit: [u8; 2],
}

impl EvictionClass {
    pub(super) fn from_charge(charge: &Charge<'_>) -> Self {
        // A limit is identified by its address. Multiplying by 2^64 over the golden ratio mixes all
        // bits into the highest.
        let mixed = (charge.limit as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let [high, low, ..] = (charge.requests_per_unit as f32).to_be_bytes();
        Self {
            limit: (mixed >> 56) as u8,
            requests_per_unit: [high, low],
        }
    }

    /// Returns the class of a counter with `count` hits.
    fn class(self, count: i64) -> usize {
        let [high, low] = self.requests_per_unit;
        let used = count as f32 / f32::from_be_bytes([high, low, 0, 0]);
        // Exponent and first bit of the fraction: 1, 3/4, 1/2, 3/8, ..
        const AT_LIMIT: u32 = 1_f32.to_bits() >> 22;
        let class = AT_LIMIT.saturating_sub(used.max(0.0).to_bits() >> 22) as usize;
        class.min(CLASSES - 1)
    }
}

/// The counters of a window that are dropped.
#[derive(Debug)]
pub(super) struct Victims {
    limits: Vec<[ClassMembers; CLASSES]>,
}

/// Number of counters that one limit has in one class of use, and number of them that are dropped.
#[derive(Debug, Clone, Copy, Default)]
struct ClassMembers {
    number: u32,
    victims: u32,
    /// Index of the next member. It starts at a random number, so that clients cannot predict which
    /// counters are dropped.
    next: u32,
}

impl Victims {
    /// Chooses `number` of these counters. There must be at least as many.
    pub(super) fn choose(
        counters: impl Iterator<Item = (EvictionClass, i64)>,
        number: usize,
    ) -> Self {
        let mut limits = vec![[ClassMembers::default(); CLASSES]; LIMIT_BUCKETS];
        for (eviction_class, count) in counters {
            limits[usize::from(eviction_class.limit)][eviction_class.class(count)].number += 1;
        }
        let sizes = |classes: &[ClassMembers; CLASSES]| classes.map(|members| members.number);
        let totals: Vec<u32> = limits
            .iter()
            .map(|classes| sizes(classes).iter().sum())
            .collect();
        let spared_first = fastrand::usize(..LIMIT_BUCKETS);
        for (classes, victims) in
            limits
                .iter_mut()
                .zip(victims_by_group(&totals, number, spared_first))
        {
            if victims == 0 {
                continue;
            }
            let shares = victims_by_group(&sizes(classes), victims as usize, 0);
            for (members, victims) in classes.iter_mut().zip(shares) {
                let next = fastrand::u32(..members.number.max(1));
                *members = ClassMembers {
                    victims,
                    next,
                    ..*members
                };
            }
        }
        Self { limits }
    }

    /// Returns whether this counter is dropped. Must be called once for each counter.
    pub(super) fn is_next_victim(&mut self, eviction_class: EvictionClass, count: i64) -> bool {
        let members =
            &mut self.limits[usize::from(eviction_class.limit)][eviction_class.class(count)];
        let index = members.next;
        members.next = (index + 1) % members.number;
        index < members.victims
    }
}

/// Returns the number of dropped members of each group, so that `number` are dropped in all and the
/// largest rest is as small as possible. If the rests cannot be equal, groups from `spared_first`
/// on keep one more.
fn victims_by_group(sizes: &[u32], number: usize, spared_first: usize) -> Vec<u32> {
    let above = |level: u32| {
        sizes
            .iter()
            .map(|size| size.saturating_sub(level) as usize)
            .sum::<usize>()
    };
    let mut low = 0;
    let mut high = sizes.iter().copied().max().unwrap_or(0);
    // The highest level with at least `number` members above it.
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if above(middle) >= number {
            low = middle
        } else {
            high = middle - 1
        }
    }
    let mut excess = above(low).saturating_sub(number);
    let mut shares: Vec<u32> = sizes.iter().map(|size| size.saturating_sub(low)).collect();
    for index in (spared_first..sizes.len()).chain(0..spared_first) {
        if excess > 0 && shares[index] > 0 {
            shares[index] -= 1;
            excess -= 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_for_test(limit: u8, requests_per_unit: u32) -> EvictionClass {
        EvictionClass {
            limit,
            ..EvictionClass::from_charge(&Charge {
                requests_per_unit,
                ..Charge::for_test(b"", 1)
            })
        }
    }

    /// Returns the number of counters left in each group (limit, requests per unit, count, number
    /// of counters).
    fn left(groups: &[(u8, u32, i64, usize)], number: usize) -> Vec<usize> {
        let counters = groups
            .iter()
            .flat_map(|&(limit, requests_per_unit, count, counters)| {
                std::iter::repeat_n((class_for_test(limit, requests_per_unit), count), counters)
            });
        let mut victims = Victims::choose(counters, number);
        let mut kept = |&(limit, requests_per_unit, count, counters): &(u8, u32, i64, usize)| {
            (0..counters)
                .filter(|_| {
                    !victims.is_next_victim(class_for_test(limit, requests_per_unit), count)
                })
                .count()
        };
        groups.iter().map(&mut kept).collect()
    }

    #[test]
    fn classes_are_shares_of_the_limit() {
        // Requests per unit, count, class.
        let table = [
            (5, 0, 31),
            (5, 1, 5),
            (5, 2, 3),
            (5, 3, 2),
            (5, 4, 1),
            (5, 5, 0),
            (5, i64::MAX, 0),
            (1, 1, 0),
            (0, 0, 31),
            (0, 1, 0),
            (1_000, 1, 20),
            (u32::MAX, 1, 31),
            (u32::MAX, i64::from(u32::MAX), 0),
        ];
        for (limit, count, class) in table {
            assert_eq!(
                class_for_test(0, limit).class(count),
                class,
                "{count} of {limit}"
            );
        }
    }

    #[test]
    fn the_largest_limit_gives_until_all_are_equal() {
        assert_eq!(
            left(&[(0, 5, 1, 100), (1, 5, 1, 40), (2, 5, 1, 10)], 50),
            [50, 40, 10]
        );
        assert_eq!(
            left(&[(0, 5, 1, 100), (1, 5, 1, 40), (2, 5, 1, 10)], 80),
            [30, 30, 10]
        );
        assert_eq!(
            left(&[(0, 5, 5, 100), (1, 5, 1, 40)], 50),
            [50, 40],
            "however much was used"
        );
        assert_eq!(
            left(&[(0, 5, 1, 3), (1, 5, 1, 3), (2, 5, 1, 3)], 1)
                .iter()
                .sum::<usize>(),
            8
        );
        assert_eq!(left(&[(0, 5, 1, 3), (1, 5, 1, 2)], 5), [0, 0]);
    }

    #[test]
    fn of_one_limit_the_largest_class_gives() {
        let classes = |ones, twos, fours, over| {
            [
                (0, 5, 1, ones),
                (0, 5, 2, twos),
                (0, 5, 4, fours),
                (0, 5, 900, over),
            ]
        };
        assert_eq!(left(&classes(100, 10, 10, 50), 40), [60, 10, 10, 50]);
        assert_eq!(left(&classes(10, 10, 50, 100), 60), [10, 10, 45, 45]);
        assert_eq!(
            left(&classes(10, 10, 10, 10), 2),
            [9, 9, 10, 10],
            "of equal ones, what is nearer the limit is spared"
        );
        let over = left(&[(0, 5, 5, 50), (0, 5, 900, 50)], 30);
        assert_eq!(
            over.iter().sum::<usize>(),
            70,
            "over the limit all are alike"
        );
    }

    #[test]
    fn victims_are_random() {
        let mut spared = [false; 100];
        for _ in 0..1_000 {
            let all = || std::iter::repeat_n((class_for_test(0, 5), 1), 100);
            let mut victims = Victims::choose(all(), 90);
            for (spared, (eviction_class, count)) in spared.iter_mut().zip(all()) {
                *spared |= !victims.is_next_victim(eviction_class, count);
            }
        }
        assert!(spared.iter().all(|spared| *spared));
    }
}
