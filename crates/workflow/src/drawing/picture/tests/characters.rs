//! Pictures of characters.

use super::*;

#[test]
fn a_diamond_is_drawn_in_a_terminal() {
    let graph = diamond();
    let states = [
        JobState::Succeeded,
        RUNNING,
        JobState::Failed,
        JobState::Waiting,
    ];
    let picture = Picture::new(&graph, Some(&states));
    check(
        picture,
        &PLAIN,
        "
      ┌→ ▶ left ───┐
✓ a ──┤            ├→ … end
      └→ ✗ right ──┘",
    );
    check(
        picture,
        &ASCII,
        "
      +> > left ---+
+ a --+            +> . end
      +> X right --+",
    );
    check(
        Picture::new(&graph, None),
        &ASCII,
        "
    +> left ---+
a --+          +> end
    +> right --+",
    );
    let coloured = picture.text(&Terminal {
        colour: Colour::Ansi,
        ..PLAIN
    });
    assert!(coloured.contains("\x1b[33m▶ left\x1b[0m ─"), "{coloured:?}");
    assert_eq!(coloured.matches("\x1b[0m").count(), 4);
}

#[test]
fn lines_that_cross_are_not_joined() {
    check(
        Picture::new(
            &numbered(6, [(0, 3), (0, 4), (1, 4), (1, 5), (2, 5), (2, 3)]),
            None,
        ),
        &PLAIN,
        "
n0 ──┐   ┌─┌→ n4
     └───┤ │
n1 ──┐ ┌─└─│→ n3
     └─│───┤
n2 ────┴───└→ n5",
    );
}

#[test]
fn wide_characters_keep_the_lines_together() {
    check(
        Picture::new(
            &graph(&[
                ("获取", "run", &[]),
                ("ab", "run", &[]),
                ("e\u{301}", "run", &["获取", "ab"]),
            ]),
            None,
        ),
        &PLAIN,
        "
获取 ──┐
       ├→ e
ab ────┘",
    );
}

#[test]
fn jobs_with_the_same_children_share_a_line() {
    let graph = numbered(6, (0..4).flat_map(|parent| [(parent, 4), (parent, 5)]));
    check(
        Picture::new(&graph, None),
        &PLAIN,
        "
n0 ──┐
     │
n1 ──┼→ n4
     │
n2 ──┼→ n5
     │
n3 ──┘",
    );
}

#[test]
fn what_does_not_fit_becomes_a_list() {
    let chain = numbered(40, (1..40).map(|at| (at - 1, at)));
    let text = Picture::new(&chain, None).text(&PLAIN);
    assert!(
        text.starts_with("numbered, 40 jobs\nlayer 1: n0\nlayer 2: n1  after n0\n"),
        "{text}"
    );
    assert!(text.ends_with("\n… 10 more layers, 10 jobs\n"), "{text}");

    // Each of the first three hundred has its own place, since they differ in what comes after
    // them.
    let graph = numbered(
        601,
        (0..300).flat_map(|at| [(at, 300 + at), (300 + at, 600)]),
    );
    let states: Vec<JobState> = (0..601)
        .map(|at| {
            if at == 250 {
                JobState::Failed
            } else {
                JobState::Succeeded
            }
        })
        .collect();
    let text = Picture::new(&graph, Some(&states)).text(&ASCII);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "layer 1, 300 jobs: 299 succeeded, 1 failed");
    assert_eq!(lines[2], "  X n250", "what failed comes first");
    assert_eq!(lines[12], "  ... 290 more");
    assert_eq!(lines[23..25], ["  + n309  after n9", "  ... 290 more"]);
    assert_eq!(
        lines[25],
        "layer 3: + n600  after n300, n301, n302 and 297 more"
    );
    let narrow = Picture::new(&graph, Some(&states)).text(&Terminal { width: 20, ..ASCII });
    assert!(narrow.lines().all(|line| line.len() <= 20), "{narrow}");
}

#[test]
fn many_jobs_alike_are_one_in_a_terminal_when_they_do_not_fit() {
    let fan = |count: usize| {
        numbered(
            count + 2,
            (1..=count).flat_map(|at| [(0, at), (at, count + 1)]),
        )
    };
    let few = Picture::new(&fan(60), None).text(&PLAIN);
    assert_eq!((few.lines().count(), few.matches('n').count()), (60, 62));
    let mut states = vec![JobState::Waiting; 10_000];
    states[..5_000].fill(JobState::Succeeded);
    states[7] = JobState::Failed;
    let graph = fan(9_998);
    let picture = Picture::new(&graph, Some(&states));
    check(
        picture,
        &PLAIN,
        "✓ n0 ──→ ✗ 9998 jobs: 4999 waiting, 4998 succeeded, 1 failed ──→ … n9999",
    );
    let coloured = picture.text(&Terminal {
        colour: Colour::Ansi,
        ..ASCII
    });
    assert!(coloured.contains("\x1b[31mX 9998 jobs: "), "{coloured:?}");
    let narrow = picture.text(&Terminal { width: 40, ..PLAIN });
    assert!(
        narrow.starts_with("numbered, 10000 jobs: 5000 waiting, 4999\n    succeeded, 1 failed\n"),
        "{narrow}"
    );
}
