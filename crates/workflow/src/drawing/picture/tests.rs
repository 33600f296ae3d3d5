mod characters;

use proptest::prelude::*;

use super::state_style::StateStyle;
use super::*;
use crate::graph::{Definition, Graph, JobDefinition};
use crate::model::{JobState, Timestamp};

fn graph(jobs: &[(&str, &str, &[&str])]) -> Graph {
    let job = |&(name, handler, after): &(&str, &str, &[&str])| JobDefinition {
        after: after.iter().map(|&name| name.to_owned()).collect(),
        ..JobDefinition::new(name, handler)
    };
    let jobs = jobs.iter().map(job).collect();
    Graph::build(Definition {
        name: "nightly".to_owned(),
        jobs,
        ..Definition::default()
    })
    .expect("a sound graph")
}

/// Jobs 0 to `count`, and arrows between them.
fn numbered(count: usize, arrows: impl IntoIterator<Item = (usize, usize)>) -> Graph {
    let mut jobs: Vec<JobDefinition> = (0..count)
        .map(|at| JobDefinition::new(format!("n{at}"), "run"))
        .collect();
    arrows
        .into_iter()
        .for_each(|(from, to)| jobs[to].after.push(format!("n{from}")));
    Graph::build(Definition {
        name: "numbered".to_owned(),
        jobs,
        ..Definition::default()
    })
    .expect("arrows go up")
}

fn diamond() -> Graph {
    graph(&[
        ("a", "run", &[]),
        ("left", "run", &["a"]),
        ("right", "right", &["a"]),
        ("end", "run", &["left", "right"]),
    ])
}

const RUNNING: JobState = JobState::Running {
    expires: Timestamp::from_micros(1),
};
const SCHEDULED: JobState = JobState::Scheduled {
    due: Timestamp::from_micros(1),
};
const ALL: [JobState; 8] = [
    JobState::Waiting,
    SCHEDULED,
    JobState::Ready,
    RUNNING,
    JobState::Succeeded,
    JobState::Failed,
    JobState::Cancelled,
    JobState::Skipped,
];

const PLAIN: Terminal = Terminal {
    width: 100,
    glyphs: Glyphs::Unicode,
    colour: Colour::None,
};
const ASCII: Terminal = Terminal {
    width: 100,
    glyphs: Glyphs::Ascii,
    colour: Colour::None,
};

fn check(picture: Picture<'_>, terminal: &Terminal, expected: &str) {
    let text = picture.text(terminal);
    assert_eq!(
        text.trim_end_matches('\n'),
        expected.trim_matches('\n'),
        "\n{text}"
    );
}

#[test]
fn many_jobs_alike_stand_in_a_frame_with_their_number() {
    let graph = numbered(302, (1..=300).flat_map(|at| [(0, at), (at, 301)]));
    let mut states = vec![JobState::Succeeded; 302];
    states[17] = JobState::Failed;
    let svg = Picture::new(&graph, Some(&states)).svg().unwrap();
    assert!(
        svg.contains("<g><title>300 jobs: 299 succeeded, 1 failed</title><rect class=\"frame\""),
        "{svg}"
    );
    assert!(
        svg.contains(">300 jobs: 299 succeeded, 1 failed</text>"),
        "the frame has room for all of it"
    );
    assert_eq!(svg.matches("marker-end").count(), 2);
    assert!(
        svg.contains("<title>n17, handler run, failed</title>"),
        "squares say what they are"
    );
    assert!(
        !svg.contains(">n17</text>") && svg.contains(">n301</text>"),
        "and have no room for names"
    );
}

#[test]
fn svg_shows_each_state_and_counts_it() {
    let graph = numbered(9, (1..9).map(|at| (0, at)));
    let states: Vec<JobState> = ALL.into_iter().chain([JobState::Failed]).collect();
    let svg = Picture::new(&graph, Some(&states)).svg().unwrap();
    for (at, state) in states.iter().enumerate() {
        let word = state.word();
        let title =
            format!(r#"<g class="{word}" role="img"><title>n{at}, handler run, {word}</title>"#);
        assert!(svg.contains(&title), "{title}");
        let number = if word == "failed" { 2 } else { 1 };
        assert!(
            svg.contains(&format!(">{word} {number}</text>")),
            "legend of {word}"
        );
    }
    assert_eq!(svg.matches("marker-end").count(), 8);
    let without = Picture::new(&graph, None).svg().unwrap();
    assert!(
        !without.contains(r#"class="mark""#) && !without.contains(r#"<g class="waiting""#),
        "no states, no legend"
    );
}

#[test]
fn svg_follows_the_colour_scheme_of_its_reader() {
    let svg = Picture::new(&diamond(), None).svg().unwrap();
    assert!(svg.contains("@media (prefers-color-scheme:dark){"));
    let rules = svg
        .split_once("<style>")
        .and_then(|(_, rest)| rest.split_once("</style>"))
        .expect("a style")
        .0;
    assert_eq!(rules.matches('{').count(), rules.matches('}').count());
}

#[test]
fn a_job_without_a_state_is_waiting() {
    let graph = diamond();
    let svg = Picture::new(&graph, Some(&[JobState::Ready]))
        .svg()
        .unwrap();
    assert!(
        svg.contains(">waiting 3</text>") && svg.contains(">ready 1</text>"),
        "{svg}"
    );
}

#[test]
fn lines_beyond_the_bound_are_counted() {
    // Each job comes after a different choice of the first 300, so that no junction can stand for
    // the lines.
    let arrows = (300..600_usize).flat_map(|to| {
        (0..300)
            .filter(move |from| (from + to) % 300 > 1)
            .map(move |from| (from, to))
    });
    let graph = numbered(600, arrows);
    let dependencies: usize = graph.jobs.iter().map(|job| job.parents.len()).sum();
    let svg = Picture::new(&graph, None).svg().unwrap();
    let drawn = svg.matches("marker-end").count();
    assert!((39_000..=40_000).contains(&drawn), "{drawn}");
    assert!(svg.contains(&format!(
        ">{} more lines are not drawn</text>",
        dependencies - drawn
    )));
}

#[test]
fn a_picture_that_would_be_too_large_is_refused() {
    // Names of the longest kind, of characters that have to be written as codes.
    let names: Vec<String> = (0..30_000)
        .map(|at| format!("{at:05}{}", "\"".repeat(195)))
        .collect();
    let jobs = names.iter().enumerate().map(|(at, name)| {
        let after = if at == 0 {
            Vec::new()
        } else {
            vec![names[at - 1].clone()]
        };
        JobDefinition {
            after,
            ..JobDefinition::new(name, "\"".repeat(200))
        }
    });
    let graph = Graph::build(Definition {
        name: "long".to_owned(),
        jobs: jobs.collect(),
        ..Definition::default()
    })
    .unwrap();
    let picture = Picture::new(&graph, None);
    assert_eq!(
        (picture.svg(), picture.mermaid()),
        (Err(TooLarge), Err(TooLarge))
    );
    assert_eq!(TooLarge.to_string(), "the picture has more than 32 MiB");
    let dot = picture.dot().unwrap();
    assert!(
        dot.len() < MAX_PICTURE && dot.ends_with("}\n"),
        "quotes are two characters here"
    );
    assert!(picture.text(&PLAIN).len() < 100_000);
}

#[test]
fn dot_and_mermaid_have_every_job_and_dependency() {
    let graph = diamond();
    let states = [
        JobState::Succeeded,
        JobState::Succeeded,
        RUNNING,
        JobState::Waiting,
    ];
    let picture = Picture::new(&graph, Some(&states));
    let dot = picture.dot().unwrap();
    let mermaid = picture.mermaid().unwrap();
    for line in [
        "j0 -> j1;",
        "j0 -> j2;",
        "j1 -> j3;",
        "j2 -> j3;",
        r#"j2 [label="right", tooltip="running", fill"#,
    ] {
        assert!(dot.contains(&format!("\n  {line}")), "{line}: {dot}");
    }
    for line in [
        "j0 --> j1",
        "j2 --> j3",
        r#"j0["a<br/>run"]"#,
        r#"j2["right"]"#,
        "class j0,j1 succeeded",
    ] {
        assert!(
            mermaid.contains(&format!("\n  {line}\n")),
            "{line}: {mermaid}"
        );
    }
    assert_eq!(
        (dot.matches("->").count(), mermaid.matches("-->").count()),
        (4, 4)
    );
    assert_eq!(
        mermaid.matches("classDef").count(),
        3,
        "only states that occur"
    );
}

#[test]
fn text_never_becomes_syntax() {
    let name = "<a href=\"x\">&amp;'\\\"]:::`%%{init: {}}%%`#quot;";
    let graph = graph(&[(name, "\\N\u{ffff}\u{202e}", &[])]);
    let picture = Picture::new(&graph, Some(&[JobState::Ready]));
    let svg = picture.svg().unwrap();
    assert!(svg.contains(
        "<title>&lt;a href=&quot;x&quot;&gt;&amp;amp;&#39;\\&quot;]:::`%%{init: {}}%%`#quot;, handler \\N\u{fffd}"
    ));
    assert!(
        picture
            .dot()
            .unwrap()
            .contains(r#"[label="<a href=\"x\">&amp;amp;'\\\"]:::`%%{init: {}}%%`#quot;\n\\N"#),
        "{}",
        picture.dot().unwrap()
    );
    let mermaid = picture.mermaid().unwrap();
    let label = mermaid
        .split('"')
        .nth(1)
        .expect("a label in quotes")
        .replace("<br/>", "");
    let plain = |character: char| character.is_alphanumeric() || " -_.,/+=#;".contains(character);
    assert!(label.chars().all(plain), "{label}");
    assert!(
        label.starts_with("#60;a href=#34;x#34;#62;#38;amp#59;#39;#92;"),
        "{label}"
    );
}

/// The jobs that lines lead to from each job, by what a reader sees: lines go right, or up and down
/// in between, and go on behind glyphs that have no arm towards them.
fn seen(text: &str) -> Vec<(usize, usize)> {
    let cells: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
    let at = |row: usize, column: usize| {
        cells
            .get(row)
            .and_then(|row| row.get(column))
            .copied()
            .unwrap_or(' ')
    };
    let number = |row: usize, from: usize| -> usize {
        let digits: String = cells[row][from..]
            .iter()
            .take_while(|cell| cell.is_ascii_digit())
            .collect();
        digits.parse().expect("the number of a job")
    };
    let mut pairs = Vec::new();
    for (row, line) in cells.iter().enumerate() {
        for column in (0..line.len()).filter(|&column| line[column] == 'n') {
            let job = number(row, column + 1);
            let begin = column + 2 + job.to_string().len();
            // Row, column, and the way to go on: 0 right, 1 up, 2 down.
            let mut ways = vec![(row, begin, 0)];
            while let Some((row, column, way)) = ways.pop() {
                let cell = at(row, column);
                match (cell, way) {
                    (' ', _) => continue,
                    ('→', _) => {
                        pairs.push((job, number(row, column + 3)));
                        continue;
                    }
                    _ => {}
                }
                let behind = way == 0 && !"─┘┐┤┴┬┼".contains(cell);
                if behind
                    || (way == 0 && "─┴┬┼".contains(cell))
                    || (way > 0 && "└┌├┴┬┼".contains(cell))
                {
                    ways.push((row, column + 1, 0));
                }
                if !behind && way != 2 && "│┘└┤├┴┼".contains(cell) {
                    ways.push((row - 1, column, 1));
                }
                if !behind && way != 1 && "│┐┌┤├┬┼".contains(cell) {
                    ways.push((row + 1, column, 2));
                }
            }
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

proptest! {
    #[test]
    fn a_drawing_shows_exactly_the_dependencies(
        count in 2_usize..16, arrows in proptest::collection::vec((0_usize..16, 0_usize..16), 0..24),
    ) {
        let up = arrows.into_iter().map(|(one, other)| (one.min(other) % count, one.max(other) % count));
        let graph = numbered(count, up.filter(|(from, to)| from < to));
        let text = Picture::new(&graph, None).text(&Terminal { width: 1_000, ..PLAIN });
        let children = graph.jobs.iter().enumerate();
        let mut pairs: Vec<_> =
            children.flat_map(|(to, job)| job.parents.iter().map(move |from| (from.index(), to))).collect();
        pairs.sort_unstable();
        if !text.starts_with("numbered") {
            prop_assert_eq!(seen(&text), pairs, "\n{}", text);
        }
    }

    #[test]
    fn drawings_and_lists_are_made_of_any_graph(
        count in 1_usize..24, arrows in proptest::collection::vec((0_usize..24, 0_usize..24), 0..60), width in 0_usize..200,
    ) {
        let up = arrows.into_iter().map(|(one, other)| (one.min(other) % count, one.max(other) % count));
        let graph = numbered(count, up.filter(|(from, to)| from < to));
        let states: Vec<JobState> = ALL.into_iter().cycle().take(count).collect();
        let picture = Picture::new(&graph, Some(&states));
        let text = picture.text(&Terminal { width, ..ASCII });
        prop_assert!(text.is_ascii());
        prop_assert!(text.lines().all(|line| line.len() <= width && line.trim_end() == line), "{}", text);
        if width > 150 && !text.starts_with("numbered") {
            for (at, state) in states.iter().enumerate() {
                let label = format!("{} n{at}", StateStyle::for_state(*state).ascii);
                prop_assert!(text.lines().any(|line| line.contains(&label)), "{} in {}", label, text);
            }
        }
    }
}
