use super::*;
use crate::model::{Partition, Timestamp};

fn entries(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn units(hits: u32, value: &str) -> Limit {
    Limit::Units {
        domain: "vendor".to_owned(),
        entries: entries(&[("tenant", value)]),
        hits,
    }
}

fn running(most: u32, scope: ConcurrencyScope, value: &str) -> Limit {
    Limit::concurrency(most, scope, "mail", &entries(&[("tenant", value)]))
}

fn check(limits: Vec<Limit>, key: &str) {
    let limits = Limits::new(limits);
    assert_eq!(limits.key(), key);
    assert_eq!(Limits::parse(key).as_ref(), Some(&limits));
}

#[test]
fn a_key_says_all_of_the_limits_and_is_read_back() {
    check(vec![units(1, "acme")], r#"[["vendor",1,"tenant","acme"]]"#);
    let both = vec![
        running(10, ConcurrencyScope::Queue, "acme"),
        units(3, "acme"),
    ];
    check(
        both,
        r#"[[10,"queue:mail","tenant","acme"],["vendor",3,"tenant","acme"]]"#,
    );
    check(
        vec![running(2, ConcurrencyScope::All, "é\"\\,]")],
        r#"[[2,"all","tenant","é\"\\,]"]]"#,
    );
    check(
        vec![Limit::concurrency(5, ConcurrencyScope::All, "mail", &[])],
        r#"[[5,"all"]]"#,
    );
    check(
        vec![running(1, ConcurrencyScope::Workflow, "a")],
        r#"[[1,"workflow","tenant","a"]]"#,
    );
}

#[test]
fn a_limit_that_is_there_twice_counts_once() {
    check(
        vec![units(1, "a"), units(2, "b"), units(5, "a")],
        r#"[["vendor",6,"tenant","a"],["vendor",2,"tenant","b"]]"#,
    );
    let two = vec![
        running(9, ConcurrencyScope::All, "a"),
        running(4, ConcurrencyScope::All, "a"),
        running(3, ConcurrencyScope::Queue, "a"),
    ];
    check(
        two,
        r#"[[4,"all","tenant","a"],[3,"queue:mail","tenant","a"]]"#,
    );
    let most = Limits::new([units(u32::MAX, "a"), units(1, "a")]);
    assert_eq!(most.as_slice(), [units(u32::MAX, "a")]);
}

#[test]
fn a_set_of_jobs_is_named_without_its_number() {
    let name = |limit: &Limit| match limit {
        Limit::Concurrency { name, .. } => name.clone(),
        Limit::Units { .. } => panic!("units have no holders"),
    };
    assert_eq!(
        name(&running(1, ConcurrencyScope::Queue, "a")),
        r#"["queue:mail","tenant","a"]"#
    );
    assert_eq!(
        name(&running(7, ConcurrencyScope::Queue, "a")),
        name(&running(1, ConcurrencyScope::Queue, "a"))
    );
}

#[test]
fn a_limit_says_what_its_author_did() {
    let id = WorkflowId::new(Timestamp::from_micros(1), Partition(3), 9);
    for of in [
        ConcurrencyScope::Workflow,
        ConcurrencyScope::Queue,
        ConcurrencyScope::All,
    ] {
        let expected = LimitDefinition::Concurrency {
            most: 3,
            of,
            entries: entries(&[("tenant", "a:b")]),
        };
        let limit = running(3, of, "a:b");
        assert_eq!(
            (limit.definition(), limit.for_workflow(id).definition()),
            (expected.clone(), expected)
        );
    }
    let expected = LimitDefinition::Units {
        domain: "vendor".to_owned(),
        entries: entries(&[("tenant", "a")]),
        hits: 2,
    };
    assert_eq!(units(2, "a").definition(), expected);
}

#[test]
fn the_own_workflow_is_filled_in() {
    let id = WorkflowId::new(Timestamp::from_micros(1), Partition(3), 9);
    let limits = Limits::new([
        units(1, "workflow"),
        running(1, ConcurrencyScope::Workflow, "a"),
        running(2, ConcurrencyScope::All, "workflow"),
    ]);
    let within = limits.for_workflow(id);
    let expected = format!(
        r#"[["vendor",1,"tenant","workflow"],[1,"workflow:{id}","tenant","a"],[2,"all","tenant","workflow"]]"#
    );
    assert_eq!(
        (within.key(), &*limits.key_for_workflow(id)),
        (&*expected, &*expected)
    );
    assert_eq!(Limits::parse(&expected).as_ref(), Some(&*within));
    assert_eq!(limits.max_key_bytes(), expected.len());
    let other = Limits::new([units(1, "a")]);
    assert!(
        matches!(other.for_workflow(id), Cow::Borrowed(_))
            && matches!(other.key_for_workflow(id), Cow::Borrowed(_))
    );
    let alone = Limits::new([Limit::concurrency(1, ConcurrencyScope::Workflow, "q", &[])]);
    assert_eq!(
        alone.key_for_workflow(id),
        format!(r#"[[1,"workflow:{id}"]]"#)
    );
}

#[test]
fn other_texts_are_no_keys() {
    for text in [
        "",
        "vendor",
        "[]",
        "[[]]",
        r#"[["vendor"]]"#,
        r#"[["vendor",1]]"#,
        r#"[["vendor",0,"k","v"]]"#,
        r#"[["vendor",1,"k"]]"#,
        r#"[["vendor",1,"k",2]]"#,
        r#"[["vendor",1.5,"k","v"]]"#,
        r#"[["vendor",4294967296,"k","v"]]"#,
        r#"[["vendor", 1,"k","v"]]"#,
        r#"[["\u0076endor",1,"k","v"]]"#,
        r#"[["vendor",1,"k","v"],["vendor",1,"k","v"]]"#,
        r#"[[10,"elsewhere","k","v"]]"#,
        r#"[[0,"all"]]"#,
        r#"[[10]]"#,
        r#"[[1,2]]"#,
    ] {
        assert_eq!(Limits::parse(text), None, "{text}");
    }
    let long = |bytes: usize| Limits::new([units(1, &"x".repeat(bytes))]);
    let most = MAX_LIMIT_KEY - long(0).key().len();
    assert!(Limits::parse(long(most).key()).is_some());
    assert_eq!(Limits::parse(long(most + 1).key()), None);
}
