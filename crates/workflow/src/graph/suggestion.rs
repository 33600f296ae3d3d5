//! Finds the known name that is most similar to an unknown one.

use super::MAX_NAME;

/// Maximum differing characters of similar names. Short names may differ in a third of their
/// characters.
const MAX_EDITS: usize = 3;

/// Maximum table cells and characters for a search, which bounds it to a few milliseconds: names
/// may be long, alike and many.
const MAX_STEPS: usize = 4_000_000;

/// The name with the fewest edits to `name`: wrong, missing, added and swapped characters. Letter
/// case and surrounding spaces cost nothing; of equally similar names the first is returned. `None`
/// if more than a third of the characters differ. Of very many names only the first are compared.
#[must_use]
pub fn most_similar<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > 2 * MAX_NAME {
        return None;
    }
    let wanted = folded(name);
    let bound = (wanted.len() / 3).min(MAX_EDITS);
    let mut left = MAX_STEPS;
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let folded = folded(candidate);
        let (found, steps) = edit_distance(&wanted, &folded, bound);
        if let Some(edits) = found.filter(|&edits| best.is_none_or(|(fewest, _)| edits < fewest)) {
            best = Some((edits, candidate));
        }
        left = left.saturating_sub(steps + folded.len());
        if left == 0 {
            break;
        }
    }
    best.map(|(_, candidate)| candidate)
}

fn folded(name: &str) -> Vec<char> {
    name.trim().chars().flat_map(char::to_lowercase).collect()
}

/// The edit distance of two texts (optimal string alignment) if it is at most `bound`, and the
/// number of filled table cells. Only the band around the diagonal that can stay below the bound is
/// computed, so the cost is the length times the bound.
fn edit_distance(left: &[char], right: &[char], bound: usize) -> (Option<usize>, usize) {
    if left.len().abs_diff(right.len()) > bound {
        return (None, 0);
    }
    let far = bound + 1;
    let width = 2 * bound + 1;
    // Index `at` of a row is column `row + at - bound`. So the same index of the previous row is
    // one column to the left.
    let mut older = vec![far; width];
    let mut last: Vec<usize> = (0..width)
        .map(|at| at.checked_sub(bound).unwrap_or(far))
        .collect();
    let mut costs = vec![far; width];
    let mut steps = 0;
    for row in 1..=left.len() {
        for at in 0..width {
            costs[at] = match (row + at).checked_sub(bound) {
                Some(0) => row.min(far),
                Some(column) if column <= right.len() => {
                    let left_char = left[row - 1];
                    let right_char = right[column - 1];
                    let above = last.get(at + 1).map_or(far, |cost| cost + 1);
                    let before = at.checked_sub(1).map_or(far, |at| costs[at] + 1);
                    let cost = (last[at] + usize::from(left_char != right_char))
                        .min(above)
                        .min(before);
                    let swapped = row > 1
                        && column > 1
                        && left_char == right[column - 2]
                        && left[row - 2] == right_char;
                    if swapped {
                        cost.min(older[at] + 1).min(far)
                    } else {
                        cost.min(far)
                    }
                }
                _ => far,
            };
        }
        steps += width;
        if costs.iter().all(|&cost| cost > bound) {
            return (None, steps);
        }
        std::mem::swap(&mut older, &mut last);
        std::mem::swap(&mut last, &mut costs);
    }
    let found = last[right.len() + bound - left.len()];
    (Some(found).filter(|&cost| cost <= bound), steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, known: &[&str], expected: Option<&str>) {
        assert_eq!(
            most_similar(name, known.iter().copied()),
            expected,
            "{name:?}"
        );
    }

    #[test]
    fn the_nearest_name_is_offered() {
        check("fetsh", &["load", "fetch", "fetches"], Some("fetch"));
        check("fecth", &["fetch"], Some("fetch"));
        check("fetchh", &["fetch"], Some("fetch"));
        check("ftch", &["fetch"], Some("fetch"));
        check("Fetch", &["fetsh", "fetch"], Some("fetch"));
        check(" fetch ", &["fetch"], Some("fetch"));
        check(
            "send-report-2",
            &["send-report-1", "send-report-3"],
            Some("send-report-1"),
        );
        check(
            "überprüfen",
            &["ueberpruefen", "Überprufen"],
            Some("Überprufen"),
        );
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
        let texts = [
            "", "a", "ab", "ba", "abc", "acb", "xyz", "abcdef", "abdcef", "bcdefa", "abcdefgh",
        ];
        for left in texts {
            for right in texts {
                let (left, right): (Vec<char>, Vec<char>) =
                    (left.chars().collect(), right.chars().collect());
                let whole = edit_distance(&left, &right, 100)
                    .0
                    .expect("within any bound");
                for bound in 0..5 {
                    let expected = Some(whole).filter(|&cost| cost <= bound);
                    assert_eq!(
                        edit_distance(&left, &right, bound).0,
                        expected,
                        "{left:?} {right:?} {bound}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_a_search_costs_is_bounded() {
        let alike = |end: usize| format!("{}{end:04}", "x".repeat(196));
        let (left, right): (Vec<char>, Vec<char>) =
            (alike(1).chars().collect(), alike(2).chars().collect());
        let (found, steps) = edit_distance(&left, &right, MAX_EDITS);
        assert_eq!(
            (found, steps),
            (Some(1), 200 * (2 * MAX_EDITS + 1)),
            "the length times the bound"
        );
        let names: Vec<String> = (0..34_000).map(alike).collect();
        let mut looked_at = 0;
        let known = names.iter().map(String::as_str).inspect(|_| looked_at += 1);
        assert_eq!(
            most_similar(&"x".repeat(200), known),
            None,
            "each differs in more characters"
        );
        assert!(looked_at < 4_000, "{looked_at} names");
        // Names that are not alike cost little, so many are looked at.
        let names: Vec<String> = (0..30_000)
            .map(|at| format!("job-{at}"))
            .chain(["fetch".to_owned()])
            .collect();
        assert_eq!(
            most_similar("fetsh", names.iter().map(String::as_str)),
            Some("fetch")
        );
    }
}
