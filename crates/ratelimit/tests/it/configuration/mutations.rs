//! Valid files with random changes: reading them ends, with limits or with errors.

use tidegate_ratelimit::{Configuration, SameDomain};

use crate::fixture::source;

/// The number of changed files. A debug build reads them in about two seconds.
const FILES: u64 = 4_000;
/// No changed file is longer, so that the time of a run is bounded.
const MAX_CHARACTERS: usize = 4_096;

/// Valid files that use every field, and every part of YAML that the reader knows.
const VALID: &[&str] = &[
    "domain: d\ndescriptors:\n  - key: a\n    value: b\n    rate_limit:\n      unit: second\n      requests_per_unit: 5\n",
    "# comment\n---\ndomain: 'd'\ndescriptors:\n- {key: \"a\\x41\", value: 0x10, shadow_mode: yes, quota_mode: off}\n...\n",
    "domain: d\ndescriptors:\n- &base\n  key: a\n  rate_limit: &rate {unit: hour, requests_per_unit: 0b11}\n- <<: *base\n  key: b\n- \
     {<<: [{key: c}, *base], rate_limit: *rate}\n",
    "domain: d\ndescriptors:\n- key: a\n  descriptors:\n  - key: b\n    value: x*\n    share_threshold: true\n    \
     descriptors: [{key: c, detailed_metric: true, value_to_metric: false, rate_limit: {unlimited: true}}]\n",
    "domain: d\ndescriptors:\n- key: a\n  metadata: {x: [1, 0.5, ~, {y: .5e1}], 2: !!str 3}\n  rate_limit:\n    unit: day\n    name: n\n    \
     replaces: [{name: m}, {name: o}]\n",
    "%YAML 1.2\n---\n? domain\n: |+\n  several\n  lines\n? descriptors\n: - key: >-\n      folded\n      text\n    value: é\u{85}\n",
    "{domain: d, descriptors: [{key: a, value: 017}, {key: ~x, value: !!int 5}, {key: 'it''s'}]}\n--- # second\n[\n",
];

/// Texts that mean something to the reader.
const PIECES: &[&str] = &[
    "- ",
    "  ",
    "\n",
    "\t",
    ": ",
    "? ",
    ", ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "<<: ",
    "<<: *base",
    "'",
    "\"",
    "|",
    ">",
    "#",
    "!!int ",
    "!!float ",
    "!x ",
    "%TAG ",
    "---\n",
    "...\n",
    "~",
    "0x",
    "-1",
    "1e999",
    ".nan",
    "\u{feff}",
    "\u{0}",
    "\\",
    "domain: ",
    "descriptors: ",
    "rate_limit: ",
    "unit: ",
    "replaces: ",
    "metadata: ",
    "é",
];

/// What ends a line in YAML 1.1.
const BREAKS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// Shows the file when a test fails while reading it.
struct ShownOnPanic<'a> {
    seed: u64,
    text: &'a str,
}

impl Drop for ShownOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, file {:?}", self.seed, self.text);
        }
    }
}

#[test]
fn a_changed_file_is_read_or_refused() {
    for valid in VALID {
        let loaded = Configuration::load(&[source("valid.yaml", valid)], SameDomain::Refuse);
        assert!(loaded.is_ok(), "{valid:?}: {loaded:?}");
    }
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..FILES {
        let text = changed_file(seed);
        let _shown = ShownOnPanic { seed, text: &text };
        match Configuration::load(&[source("changed.yaml", &text)], SameDomain::Refuse) {
            Ok(configuration) => {
                // The tree is as good as one of a file that nobody changed.
                assert_eq!(
                    configuration.dump().lines().count(),
                    configuration.stats_keys().count()
                );
                accepted += 1;
            }
            Err(errors) => {
                assert!(!errors.is_empty());
                for error in errors {
                    assert!(error.line >= 1 && error.column >= 1, "{error}");
                    assert!(
                        usize::try_from(error.line).unwrap() <= text.split(BREAKS).count() + 1,
                        "{error}"
                    );
                    let _ = (error.reference_text(), error.hint());
                }
                refused += 1;
            }
        }
    }
    // Changes that always give an error, or never one, would test little.
    assert!(
        accepted > FILES / 20 && refused > FILES / 2,
        "{accepted} accepted, {refused} refused"
    );
}

/// One of the valid files with one to three changes.
fn changed_file(seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    let valid = VALID[random.usize(..VALID.len())];
    let mut text: Vec<char> = valid.chars().collect();
    for _ in 0..random.u32(1..=3) {
        change(&mut text, &mut random);
    }
    text.into_iter().take(MAX_CHARACTERS).collect()
}

fn change(text: &mut Vec<char>, random: &mut fastrand::Rng) {
    let start = random.usize(..=text.len());
    let end = (start + random.usize(..=16)).min(text.len());
    match random.u32(..6) {
        0 => drop(text.drain(start..end)),
        1 => insert(text, start, PIECES[random.usize(..PIECES.len())].chars()),
        2 => {
            let other = VALID[random.usize(..VALID.len())];
            insert(
                text,
                start,
                other.chars().skip(random.usize(..other.len())).take(40),
            );
        }
        3 => {
            let part: Vec<char> = text[start..end].to_vec();
            let times = random.usize(1..=32);
            insert(
                text,
                start,
                part.iter().copied().cycle().take(part.len() * times),
            );
        }
        4 => {
            let part: Vec<char> = text.drain(start..end).collect();
            let target = random.usize(..=text.len());
            insert(text, target, part.into_iter());
        }
        _ => {
            if let Some(character) = text.get_mut(start) {
                *character = random.char(' '..'\u{ff}');
            }
        }
    }
}

fn insert(text: &mut Vec<char>, at: usize, characters: impl Iterator<Item = char>) {
    text.splice(at..at, characters);
}

/// Files in which one thing is repeated: this test ends in seconds because the time to read each of them is linear.
#[test]
fn the_time_to_read_a_file_is_linear() {
    const REPEATED: usize = 20_000;
    let many =
        |start: &str, piece: &str, end: &str| format!("{start}{}{end}", piece.repeat(REPEATED));
    let numbered = |start: &str, piece: &dyn Fn(usize) -> String| {
        format!("{start}{}", (0..REPEATED).map(piece).collect::<String>())
    };
    let files = [
        numbered("domain: d\ndescriptors:\n", &|number| {
            format!("- key: k{number}\n")
        }),
        numbered("domain: d\ndescriptors:\n", &|number| {
            format!("- key: k\n  value: v{number}*\n")
        }),
        numbered("domain: d\n", &|number| format!("x{number}: 1\n")),
        many("domain: d\ndescriptors:\n", "- key: a\n", ""),
        many(
            "domain: d\ndescriptors:\n",
            "- key: [a]\n  rate_limit: 5\n",
            "",
        ),
        many("domain: d\ndescriptors: [", "{key: 5.5}, ", "]"),
        many("domain: d\ndescriptors: ~\n", "metadata: 5\n", ""),
        many("domain: '", "a ", "'"),
        many("domain: \"", "\\n", "\""),
        many("domain: |\n", "  a\n", ""),
        many("domain: ", "a ", ""),
        many("domain: a", "\n  a", ""),
        many("domain: d\n", "# comment\n", ""),
        many("domain: d\n", "\n", ""),
        many("domain: d\n", " ", ""),
        many("", "a", ": b"),
        many("domain: [", "a, ", ""),
        many("domain: &a [", "*a, ", ""),
        numbered("a: &a0 b\n", &|number| {
            format!("a: &a{} *a{number}\n", number + 1)
        }),
        numbered("domain: d\ndescriptors: ~\nmetadata:\n", &|number| {
            format!("- &a{number} b\n- *a{number}\n")
        }),
        numbered("domain: d\nmetadata:\n- &a {key: b}\n", &|_| {
            "- {<<: *a}\n".to_owned()
        }),
        many("", "- ", ""),
        many("", "[", ""),
        many("", "? ", ""),
        many("", "!", " a"),
        many("", "%X y\n", "---\ndomain: d"),
        many("", "---\n", ""),
    ];
    for text in files {
        let _ = Configuration::load(&[source("long.yaml", &text)], SameDomain::Refuse);
    }
}
