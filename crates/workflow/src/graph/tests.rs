use std::time::Duration;

use proptest::prelude::*;

use super::{ConcurrencyScope, LimitDefinition, MAX_JOBS, MAX_NAME, MAX_TAGS, TriggerRule, *};
use crate::codec::{Format, decode, encode};

fn job(name: &str, after: &[&str]) -> JobDefinition {
    let after = after.iter().map(|&name| name.to_owned()).collect();
    JobDefinition {
        after,
        ..JobDefinition::new(name, "handler")
    }
}

fn of(jobs: Vec<JobDefinition>) -> Definition {
    Definition {
        name: "nightly".to_owned(),
        jobs,
        ..Definition::default()
    }
}

fn check(definition: Definition, expected: &str) {
    match Graph::build(definition) {
        Ok(_) => panic!("accepted; expected: {expected}"),
        Err(error) => assert_eq!(error.to_string(), expected),
    }
}

fn names(graph: &Graph, jobs: &[JobIndex]) -> Vec<String> {
    jobs.iter()
        .map(|job| graph.jobs[job.index()].name.clone())
        .collect()
}

#[test]
fn after_and_before_mean_the_same() {
    let mut first = job("first", &[]);
    first.before = vec!["last".to_owned(), "middle".to_owned(), "last".to_owned()];
    let graph = Graph::build(of(vec![
        job("last", &["middle", "first"]),
        job("middle", &["first"]),
        first,
    ]))
    .unwrap();
    assert_eq!(
        names(&graph, &graph.in_order()),
        ["first", "middle", "last"]
    );
    assert_eq!(
        graph.jobs[0].parents,
        [JobIndex(1), JobIndex(2)],
        "each parent once, ascending"
    );
    assert_eq!(
        names(&graph, graph.children(JobIndex(2))),
        ["last", "middle"]
    );
    assert_eq!(graph.find("middle"), Some(JobIndex(1)));
    assert_eq!(graph.find("nobody"), None);
}

#[test]
fn descendants_are_found_once_and_without_the_start() {
    let jobs = vec![
        job("a", &[]),
        job("b", &["a"]),
        job("c", &["a"]),
        job("d", &["b", "c"]),
        job("e", &[]),
    ];
    let graph = Graph::build(of(jobs)).unwrap();
    assert_eq!(
        names(&graph, &graph.descendants(&[JobIndex(0)])),
        ["b", "c", "d"]
    );
    assert_eq!(
        names(&graph, &graph.descendants(&[JobIndex(1), JobIndex(2)])),
        ["d"]
    );
    assert!(graph.descendants(&[JobIndex(4)]).is_empty() && graph.descendants(&[]).is_empty());
}

#[test]
fn what_a_definition_says_reaches_the_graph() {
    let mut definition = of(vec![job("a", &[])]);
    definition.tags = vec!["red".to_owned(), "blue".to_owned(), "red".to_owned()];
    definition.globals = Some(Json::parse(" {}").unwrap());
    definition.idempotency_key = Some("once".to_owned());
    definition.on_failure = OnFailure::FailFast;
    definition.retention = Some(Retention::Forever);
    definition.jobs[0].wait = Duration::from_secs(3);
    definition.jobs[0].rule = TriggerRule::AllDone;
    let graph = Graph::build(definition.clone()).unwrap();
    assert_eq!(
        graph.label,
        Label {
            name: "nightly".to_owned(),
            tags: vec!["blue".to_owned(), "red".to_owned()]
        }
    );
    assert_eq!(
        (graph.globals, graph.idempotency_key),
        (definition.globals, definition.idempotency_key)
    );
    assert_eq!(
        (graph.on_failure, graph.retention),
        (definition.on_failure, definition.retention)
    );
    assert_eq!(
        (graph.jobs[0].wait, graph.jobs[0].rule),
        (Duration::from_secs(3), TriggerRule::AllDone)
    );
    assert_eq!(
        (graph.jobs[0].name.as_str(), graph.jobs[0].handler.as_str()),
        ("a", "handler")
    );
}

#[test]
fn a_stored_graph_is_the_same() {
    let definition = of(vec![job("b", &["a"]), job("a", &[])]);
    let mut limited = definition.clone();
    let entries = vec![("tenant".to_owned(), "acme".to_owned())];
    limited.jobs[1].limits = vec![LimitDefinition::Concurrency {
        most: 2,
        of: ConcurrencyScope::Workflow,
        entries,
    }];
    let plain = Graph::build(definition.clone()).unwrap();
    let limited = Graph::build(limited).unwrap();
    assert!(!plain.has_same_definition(&limited) && limited.has_same_definition(&limited.clone()));
    assert!(
        limited.has_same_definition(&plain),
        "its queue may have had limits then"
    );
    assert!(plain.allocated_bytes() < limited.allocated_bytes());
    let mut retried = definition;
    retried.jobs[0].max_lost = 7;
    for graph in [&plain, &limited, &Graph::build(retried).unwrap()] {
        let stored = encode(graph, Format::LATEST);
        assert_eq!(decode::<Graph>(&stored, String::new).as_ref(), Ok(graph));
    }
    let stored = encode(&limited, Format::LATEST);
    assert_eq!(
        limited.limits(JobIndex(1)).unwrap().key(),
        r#"[[2,"workflow","tenant","acme"]]"#
    );
    let broken = String::from_utf8_lossy(&stored)
        .replace("workflow\"", "elsewhere")
        .into_bytes();
    assert!(
        decode::<Graph>(&broken, String::new).is_err(),
        "a key that cannot be read is not passed over"
    );
}

#[test]
fn a_cycle_is_named_in_the_order_of_its_jobs() {
    let before_it = job("start", &[]);
    let cycle = vec![
        before_it,
        job("a", &["start", "c"]),
        job("b", &["a"]),
        job("c", &["b"]),
        job("d", &["c"]),
    ];
    check(
        of(cycle),
        "these jobs wait for each other: a -> b -> c -> a",
    );
    check(
        of(vec![job("a", &["a"])]),
        "these jobs wait for each other: a -> a",
    );
    let mut own = job("a", &[]);
    own.before = vec!["a".to_owned()];
    check(of(vec![own]), "these jobs wait for each other: a -> a");
    let mut both = job("a", &["b"]);
    both.before = vec!["b".to_owned()];
    check(
        of(vec![both, job("b", &[])]),
        "these jobs wait for each other: a -> b -> a",
    );
}

#[test]
fn a_long_cycle_is_named_by_its_ends() {
    let jobs = (0..MAX_JOBS).map(|at| {
        let before = format!("{}", (at + MAX_JOBS - 1) % MAX_JOBS);
        job(&at.to_string(), &[&before])
    });
    let error = Graph::build(of(jobs.collect())).unwrap_err();
    let GraphError::Cycle { cycle } = &error else {
        panic!("{error}")
    };
    assert_eq!(cycle.len(), MAX_JOBS + 1);
    let text = error.to_string();
    let more = format!(" -> .. {} more .. -> ", MAX_JOBS - 15);
    assert!(text.contains(&more) && text.len() < 300, "{text}");
}

#[test]
fn an_unknown_job_is_named_with_its_place() {
    let mut last = job("load", &["fetch"]);
    last.before = vec!["stor".to_owned()];
    check(
        of(vec![job("fetch", &[]), last]),
        "jobs[1].before[0]: there is no job 'stor'",
    );
    let jobs = vec![job("fetch", &[]), job("load", &["fetch", "fecth"])];
    check(
        of(jobs),
        "jobs[1].after[1]: there is no job 'fecth' (is 'fetch' meant?)",
    );
    check(
        of(vec![job("a", &["\u{1b}[2J"])]),
        "jobs[0].after[0]: there is no job '\u{fffd}[2J'",
    );
    let long = "x".repeat(1_000_000);
    let error = Graph::build(of(vec![job("x", &[&long])]))
        .unwrap_err()
        .to_string();
    assert!(error.len() < 300, "{}", error.len());
}

#[test]
fn two_jobs_of_one_name_are_refused() {
    let jobs = vec![job("a", &[]), job("b", &[]), job("a", &["b"])];
    check(
        of(jobs),
        "jobs[2].name: 'a' is the name of jobs[0] too: give each job a name of its own",
    );
}

#[test]
fn names_have_bounds() {
    const RULE: &str = "a name must have 1 to 200 bytes and no control characters, and not be '.' or '..', but this is";
    let edge = "é".repeat(MAX_NAME / 2);
    let long = format!("{edge}x");
    type Place = fn(&mut Definition, String);
    let places: [(&str, Place); 6] = [
        ("name", |definition, name| definition.name = name),
        ("tags[1]", |definition, name| {
            definition.tags = vec!["tag".to_owned(), name]
        }),
        ("idempotency_key", |definition, name| {
            definition.idempotency_key = Some(name)
        }),
        ("jobs[1].name", |definition, name| {
            definition.jobs[1].name = name
        }),
        ("jobs[1].handler", |definition, name| {
            definition.jobs[1].handler = name
        }),
        ("jobs[1].queue", |definition, name| {
            definition.jobs[1].queue = name
        }),
    ];
    for (path, put) in places {
        let with = |name: &str| {
            let mut definition = of(vec![job("a", &[]), job("b", &[])]);
            put(&mut definition, name.to_owned());
            definition
        };
        check(with(""), &format!("{path}: {RULE} empty"));
        check(with(&long), &format!("{path}: {RULE} 201 bytes long"));
        check(with("."), &format!("{path}: {RULE} '.'"));
        check(with(".."), &format!("{path}: {RULE} '..'"));
        assert!(Graph::build(with("...")).is_ok(), "{path}");
        check(with("a\nb"), &format!("{path}: {RULE} \"a\\nb\""));
        check(with("\u{85}"), &format!("{path}: {RULE} \"\\u{{85}}\""));
        assert!(
            Graph::build(with(&edge)).is_ok() && Graph::build(with(" ")).is_ok(),
            "{path}"
        );
    }
}

#[test]
fn numbers_have_bounds() {
    check(of(Vec::new()), "the workflow has no jobs: add at least one");
    let count = |count: usize| of((0..count).map(|at| job(&at.to_string(), &[])).collect());
    check(
        count(MAX_JOBS + 1),
        "the workflow has 131073 jobs, more than 131072: split it",
    );
    assert_eq!(
        Graph::build(count(MAX_JOBS)).unwrap().in_order().len(),
        MAX_JOBS
    );
    let tagged = |tags: usize| Definition {
        tags: (0..tags).map(|at| at.to_string()).collect(),
        ..count(1)
    };
    check(tagged(MAX_TAGS + 1), "tags: 17 of them, more than 16");
    assert_eq!(
        Graph::build(tagged(MAX_TAGS)).unwrap().label.tags.len(),
        MAX_TAGS
    );
}

#[test]
fn globals_and_params_are_objects() {
    for other in ["[]", "1", "null", "\"{}\""] {
        let mut definition = of(vec![job("a", &[])]);
        definition.globals = Some(Json::parse(other).unwrap());
        check(definition, "globals: expected a JSON object");
        let mut definition = of(vec![job("a", &[])]);
        definition.jobs[0].params = Some(Json::parse(other).unwrap());
        check(definition, "jobs[0].params: expected a JSON object");
    }
}

#[test]
fn the_largest_chain_is_put_in_order() {
    let jobs = (0..MAX_JOBS).rev().map(|at| match at {
        0 => job("0", &[]),
        _ => job(&at.to_string(), &[&(at - 1).to_string()]),
    });
    let graph = Graph::build(of(jobs.collect())).unwrap();
    let first = JobIndex(MAX_JOBS as u32 - 1);
    assert_eq!(graph.in_order()[0], first);
    assert_eq!(graph.descendants(&[first]).len(), MAX_JOBS - 1);
}

/// Jobs whose places are shuffled by `seed`, and arrows that only go one way: from a lower number
/// to a higher one.
fn acyclic(count: usize, arrows: &[(usize, usize)], seed: u64) -> Vec<JobDefinition> {
    let mut jobs: Vec<JobDefinition> = (0..count).map(|at| job(&at.to_string(), &[])).collect();
    for (place, &(one, other)) in arrows.iter().enumerate() {
        let low = one.min(other) % count;
        let high = one.max(other) % count;
        if low < high && place % 2 == 0 {
            jobs[high].after.push(low.to_string());
        } else if low < high {
            jobs[low].before.push(high.to_string());
        }
    }
    fastrand::Rng::with_seed(seed).shuffle(&mut jobs);
    jobs
}

fn parents_first(graph: &Graph) -> bool {
    let mut seen = vec![false; graph.jobs.len()];
    graph.in_order().iter().all(|job| {
        let after_its_parents = graph.jobs[job.index()]
            .parents
            .iter()
            .all(|parent| seen[parent.index()]);
        after_its_parents && !std::mem::replace(&mut seen[job.index()], true)
    }) && seen.iter().all(|&seen| seen)
}

fn arrows() -> impl Strategy<Value = Vec<(usize, usize)>> {
    proptest::collection::vec((0_usize..30, 0_usize..30), 0..90)
}

proptest! {
    #[test]
    fn acyclic_definitions_give_an_order_with_parents_first(
        count in 1_usize..30, arrows in arrows(), seed in any::<u64>(),
    ) {
        let graph = Graph::build(of(acyclic(count, &arrows, seed))).unwrap();
        prop_assert!(parents_first(&graph));
    }

    #[test]
    fn a_cycle_anywhere_is_found_and_its_arrows_exist(
        count in 2_usize..30, arrows in arrows(), seed in any::<u64>(), ring in 1_usize..30,
    ) {
        let mut jobs = acyclic(count, &arrows, seed);
        let ring = ring.min(count);
        for at in 0..ring {
            let before = jobs[(at + ring - 1) % ring].name.clone();
            jobs[at].after.push(before);
        }
        let error = Graph::build(of(jobs.clone())).unwrap_err();
        let GraphError::Cycle { cycle } = error else { panic!("{error}") };
        prop_assert_eq!(cycle.first(), cycle.last());
        let named = |name: &str| jobs.iter().find(|job| job.name == name).unwrap();
        for pair in cycle.windows(2) {
            let parent = named(&pair[0]);
            let child = named(&pair[1]);
            prop_assert!(parent.before.contains(&child.name) || child.after.contains(&parent.name), "{:?}", pair);
        }
        let distinct: HashSet<&String> = cycle.iter().collect();
        prop_assert_eq!(distinct.len(), cycle.len() - 1);
    }

    #[test]
    fn any_definition_is_accepted_or_refused_without_panic(
        jobs in proptest::collection::vec((".{0,3}", ".{0,3}", proptest::collection::vec("[ab\u{0}-\u{ff}]{0,2}", 0..3)), 0..6),
        name in any::<String>(),
    ) {
        let jobs = jobs.into_iter().map(|(name, handler, names)| JobDefinition {
            before: names.iter().take(1).cloned().collect(),
            after: names,
            ..JobDefinition::new(name, handler)
        });
        match Graph::build(Definition { name, ..of(jobs.collect()) }) {
            Ok(graph) => prop_assert!(parents_first(&graph)),
            Err(error) => prop_assert!(!error.to_string().chars().any(char::is_control)),
        }
    }
}
