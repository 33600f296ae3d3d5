//! Finds the known name that is most like an unknown one.

use super::error::MAX_NAME;
use crate::id::JobIndex;

/// With more differences than this, a name is taken for another name. Short names may differ in a third of their characters.
const MOST_SLIPS: usize = 3;

/// The name that takes the fewest slips to become `name`: wrong, missing, added and swapped characters. Letter case and spaces
/// around cost nothing; of equals, the first job's. None is near enough when it takes more than a slip in three characters.
pub(super) fn most_similar<'a>(name: &str, known: impl Iterator<Item = (JobIndex, &'a str)>) -> Option<&'a str> {
    if name.len() > 2 * MAX_NAME {
        return None;
    }
    let wanted = folded(name);
    let bound = (wanted.len() / 3).min(MOST_SLIPS);
    let near = known.filter_map(|(job, candidate)| Some((slips(&wanted, &folded(candidate), bound)?, job, candidate)));
    near.min().map(|(_, _, candidate)| candidate)
}

fn folded(name: &str) -> Vec<char> {
    name.trim().chars().flat_map(char::to_lowercase).collect()
}

/// The number of slips between two texts (optimal string alignment), when it is at most `bound`. Looks only at the band
/// around the diagonal that can stay below it, so the cost is the length times the bound.
fn slips(left: &[char], right: &[char], bound: usize) -> Option<usize> {
    if left.len().abs_diff(right.len()) > bound {
        return None;
    }
    let far = bound + 1;
    let mut older = vec![far; right.len() + 1];
    let mut last: Vec<usize> = (0..=right.len()).map(|column| column.min(far)).collect();
    for row in 1..=left.len() {
        let mut row_costs = vec![far; right.len() + 1];
        if row <= bound {
            row_costs[0] = row;
        }
        for column in row.saturating_sub(bound).max(1)..=right.len().min(row + bound) {
            let (here, there) = (left[row - 1], right[column - 1]);
            let mut cost = last[column - 1] + usize::from(here != there);
            cost = cost.min(last[column] + 1).min(row_costs[column - 1] + 1);
            let swapped = row > 1 && column > 1 && here == right[column - 2] && left[row - 2] == there;
            if swapped {
                cost = cost.min(older[column - 2] + 1);
            }
            row_costs[column] = cost.min(far);
        }
        if row_costs.iter().all(|&cost| cost > bound) {
            return None;
        }
        older = std::mem::replace(&mut last, row_costs);
    }
    Some(last[right.len()]).filter(|&cost| cost <= bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, known: &[&str], expected: Option<&str>) {
        let known = known.iter().enumerate().map(|(at, &name)| (JobIndex(at as u32), name));
        assert_eq!(most_similar(name, known), expected, "{name:?}");
    }

    #[test]
    fn the_nearest_name_is_offered() {
        check("fetsh", &["load", "fetch", "fetches"], Some("fetch"));
        check("fecth", &["fetch"], Some("fetch"));
        check("fetchh", &["fetch"], Some("fetch"));
        check("ftch", &["fetch"], Some("fetch"));
        check("Fetch", &["fetsh", "fetch"], Some("fetch"));
        check(" fetch ", &["fetch"], Some("fetch"));
        check("send-report-2", &["send-report-1", "send-report-3"], Some("send-report-1"));
        check("überprüfen", &["ueberpruefen", "Überprufen"], Some("Überprufen"));
        check("A", &["a"], Some("a"));
    }

    #[test]
    fn other_names_are_not_offered() {
        check("a", &["b"], None);
        check("", &["b"], None);
        check("fetch", &["store", "fetch-all-pages"], None);
        check("transform-everything", &["transform-nothing-here"], None);
        check(&"x".repeat(1_000_000), &["x"], None);
        check("fetch", &[], None);
    }

    #[test]
    fn slips_agree_with_the_whole_table() {
        let texts = ["", "a", "ab", "ba", "abc", "acb", "xyz", "abcdef", "abdcef", "bcdefa", "abcdefgh"];
        for left in texts {
            for right in texts {
                let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
                let whole = slips(&left, &right, 100).expect("within any bound");
                for bound in 0..5 {
                    let expected = Some(whole).filter(|&cost| cost <= bound);
                    assert_eq!(slips(&left, &right, bound), expected, "{left:?} {right:?} {bound}");
                }
            }
        }
    }
}
