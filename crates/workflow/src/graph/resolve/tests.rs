use super::*;
use crate::graph::{ConcurrencyScope, Graph, JobDefinition};
use crate::model::JobIndex;

fn units(entries: &[(&str, &str)]) -> LimitDefinition {
    let entries = entries
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    LimitDefinition::Units {
        domain: "vendor".to_owned(),
        entries,
        hits: 1,
    }
}

fn build(
    params: Option<&str>,
    globals: Option<&str>,
    limits: Vec<LimitDefinition>,
) -> Result<Graph, GraphError> {
    let json = |text: Option<&str>| text.map(|text| Json::parse(text).unwrap());
    let job = JobDefinition {
        params: json(params),
        limits,
        ..JobDefinition::new("a", "h")
    };
    let jobs = vec![JobDefinition::new("before", "h"), job];
    Graph::build(Definition {
        name: "w".to_owned(),
        jobs,
        globals: json(globals),
        ..Definition::default()
    })
}

const PARAMS: &str = r#" {"tenant":"acme","n":1.10,"big":123456789012345678901234567890,"yes":true,"a":{"b":{"c":"deep"}},
    "nothing":null,"list":["x"],"empty":"","tab":"\t","odd":"\ud800","twice":1,"twice":"last"} "#;
const GLOBALS: &str = r#"{"tenant":"other","region":"eu","a":{"d":"from globals"}}"#;

fn value(written: &str) -> Result<String, String> {
    let graph = build(
        Some(PARAMS),
        Some(GLOBALS),
        vec![units(&[("key", written)])],
    )
    .map_err(|error| error.to_string())?;
    assert_eq!(graph.limits(JobIndex(0)), None);
    match &graph.limits(JobIndex(1)).unwrap().as_slice()[0] {
        Limit::Units { entries, .. } => Ok(entries[0].1.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_come_from_params_then_from_globals() {
    for (written, expected) in [
        ("acme", "acme"),
        ("$.tenant", "acme"),
        ("$.region", "eu"),
        ("$.n", "1.10"),
        ("$.big", "123456789012345678901234567890"),
        ("$.yes", "true"),
        ("$.a.b.c", "deep"),
        ("$.a.d", "from globals"),
        ("$.twice", "last"),
        ("$$.tenant", "$.tenant"),
        ("$$$.tenant", "$$.tenant"),
        ("$", "$"),
        ("$$", "$$"),
        ("$5", "$5"),
        ("a$.b", "a$.b"),
    ] {
        assert_eq!(value(written).as_deref(), Ok(expected), "{written}");
    }
}

#[test]
fn what_is_no_value_is_refused_with_its_place() {
    const TEXT: &str = "must have 1 to 256 bytes and no control characters, but";
    let missing = |at: &str| {
        format!(
            "neither the params of the job nor the globals have {at}: set a value there, or write one here"
        )
    };
    let kind = |at: &str, found: &str| {
        format!("{at} is {found}, expected a text, a number, true or false")
    };
    let path = |text: &str| {
        format!(
            "'{text}' is not a path such as $.tenant or $.order.customer: write '${text}' if it is meant as text"
        )
    };
    for (written, expected) in [
        ("$.nobody", missing("$.nobody")),
        ("$.tenant.name", missing("$.tenant.name")),
        ("$.list.x", missing("$.list.x")),
        ("$.nothing", kind("$.nothing", "null")),
        ("$.list", kind("$.list", "a list")),
        ("$.a", kind("$.a", "an object")),
        ("$.a.b", kind("$.a.b", "an object")),
        ("$.odd", kind("$.odd", "not a text of Unicode")),
        ("$.empty", format!("the value {TEXT} $.empty is empty")),
        ("$.tab", format!("the value {TEXT} $.tab is \"\\t\"")),
        ("", format!("the value {TEXT} this is empty")),
        ("a\nb", format!("the value {TEXT} this is \"a\\nb\"")),
        (
            &*"x".repeat(257),
            format!("the value {TEXT} this is 257 bytes long"),
        ),
        ("$.", path("$.")),
        ("$.a..b", path("$.a..b")),
        ("$.a.b.c.d.e.f.g.h.i", path("$.a.b.c.d.e.f.g.h.i")),
        ("$.\u{1}", path("$.\u{fffd}")),
    ] {
        assert_eq!(
            value(written),
            Err(format!("jobs[1].limits[0].entries[0]: {expected}")),
            "{written}"
        );
    }
    let error = build(
        None,
        None,
        vec![units(&[("a", "b")]), units(&[("a", "b"), ("k", "$.t")])],
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("jobs[1].limits[1].entries[1]: {}", missing("$.t"))
    );
}

#[test]
fn an_object_that_was_read_is_still_an_object() {
    let limit = units(&[("one", "$.a.b.c"), ("two", "$.a.b")]);
    let error = build(Some(PARAMS), None, vec![limit])
        .unwrap_err()
        .to_string();
    assert!(error.contains("entries[1]: $.a.b is an object"), "{error}");
}

fn of(domain: &str, hits: u32) -> LimitDefinition {
    LimitDefinition::Units {
        domain: domain.to_owned(),
        entries: vec![("k".to_owned(), "v".to_owned())],
        hits,
    }
}

fn running(most: u32) -> LimitDefinition {
    LimitDefinition::Concurrency {
        most,
        of: ConcurrencyScope::All,
        entries: Vec::new(),
    }
}

fn check(limits: Vec<LimitDefinition>, expected: &str) {
    let found = build(None, None, limits)
        .map(drop)
        .map_err(|error| error.to_string());
    assert_eq!(found, Err(format!("jobs[1].limits{expected}")));
}

#[test]
fn limits_have_bounds() {
    let long = "x".repeat(256);
    check(
        vec![of("d", 1); 5],
        ": 5 limits, more than 4: leave some out",
    );
    check(
        vec![of("", 1)],
        "[0].domain: the domain must have 1 to 256 bytes and no control characters, but this is empty",
    );
    check(
        vec![units(&[("", "v")])],
        "[0].entries[0]: the key must have 1 to 256 bytes and no control characters, but this is empty",
    );
    check(vec![of("d", 0)], "[0].hits: 0 units, expected 1 to 1000000");
    check(
        vec![of("d", 1_000_001)],
        "[0].hits: 1000001 units, expected 1 to 1000000",
    );
    check(
        vec![units(&[])],
        "[0].entries: no entries: write at least one, as in the rule of the domain",
    );
    check(
        vec![units(&[("k", "v"); 9])],
        "[0].entries: 9 entries, more than 8: leave some out",
    );
    for most in [0, 100_001] {
        let rest = "jobs at the same time, expected 1 to 100000: pause the queue if none is to run";
        check(
            vec![running(1), running(most)],
            &format!("[1].concurrency: {most} {rest}"),
        );
    }
    let rest = "more than 1024: use shorter values";
    check(
        vec![units(&[("k", &*long); 4])],
        &format!(": the limits of the job have 1066 bytes together, {rest}"),
    );
    let most = units(&[(&*long, &*long), ("k", &*long), ("k", "v")]);
    assert!(
        build(
            None,
            None,
            vec![most, of("d", 1_000_000), running(1), running(100_000)]
        )
        .is_ok()
    );
}

#[test]
fn jobs_with_equal_limits_share_them() {
    let job = |name: &str, tenant: &str| JobDefinition {
        params: Some(Json::parse(format!(r#"{{"tenant":"{tenant}"}}"#)).unwrap()),
        limits: vec![units(&[("tenant", "$.tenant")])],
        ..JobDefinition::new(name, "h")
    };
    let jobs = vec![
        job("a", "x"),
        JobDefinition::new("b", "h"),
        job("c", "y"),
        job("d", "x"),
    ];
    let graph = Graph::build(Definition {
        name: "w".to_owned(),
        jobs,
        ..Definition::default()
    })
    .unwrap();
    let key = |job| graph.limits(JobIndex(job)).map(|limits| limits.key());
    let [x, y] = ["x", "y"].map(|tenant| format!(r#"[["vendor",1,"tenant","{tenant}"]]"#));
    assert_eq!(
        [0, 1, 2, 3, 4].map(key),
        [Some(&*x), None, Some(&y), Some(&x), None]
    );
    assert!(std::ptr::eq(
        graph.limits(JobIndex(0)).unwrap(),
        graph.limits(JobIndex(3)).unwrap()
    ));
}

/// The globals are read once however many paths lead into them.
#[test]
fn a_hundred_thousand_paths_into_large_globals_take_linear_work() {
    const JOBS: usize = 100_000;
    let all: Vec<String> = (0..JOBS).map(|at| format!("\"k{at}\":{at}")).collect();
    let globals = Json::parse(format!("{{\"a\":{{{}}}}}", all.join(","))).unwrap();
    let job = |at: usize| JobDefinition {
        limits: vec![units(&[("key", &format!("$.a.k{at}"))])],
        ..JobDefinition::new(at.to_string(), "h")
    };
    let jobs = (0..JOBS).map(job).collect();
    let definition = Definition {
        name: "w".to_owned(),
        jobs,
        globals: Some(globals),
        ..Definition::default()
    };
    let graph = Graph::build(definition).unwrap();
    let last = graph.limits(JobIndex(JOBS as u32 - 1)).unwrap();
    assert_eq!(last.key(), r#"[["vendor",1,"key","99999"]]"#);
}
