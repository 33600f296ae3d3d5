//! Each rule of the checker fails for sources that break it. The checker is the same for all
//! crates.

use std::collections::BTreeMap;

use super::checker::{Rules, problems};

const LAYERS: &[&[&str]] = &[&["top"], &["side", "middle"], &["base"]];

fn found(sources: &[(&str, &str)], rules: &Rules<'_>) -> String {
    let sources: BTreeMap<_, _> = sources
        .iter()
        .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()))
        .collect();
    problems(&sources, rules).join("\n")
}

/// Problems of a crate with a file in each layer, of which `sources` replace some, and with known
/// exceptions.
fn known(sources: &[(&str, &str)], known: &[&str]) -> String {
    let mut all = vec![
        ("lib", "mod base; mod middle; mod side; mod top;"),
        ("base", "pub(crate) struct Low; pub(crate) fn low() {}"),
        ("middle", "pub(crate) struct Mid;"),
        ("side", "pub(crate) struct Side;"),
        ("top", "pub(crate) struct High; use crate::base::Low;"),
    ];
    all.retain(|(file, _)| !sources.iter().any(|(other, _)| other == file));
    all.extend(sources);
    let rules = Rules {
        layers: LAYERS,
        never: &[],
        min_imports: 0,
        known,
    };
    found(&all, &rules)
}

#[track_caller]
fn check(sources: &[(&str, &str)], expected: &str) {
    let found = known(sources, &[]);
    if expected.is_empty() {
        assert_eq!(found, "");
    } else {
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn an_import_of_a_higher_layer_names_file_line_and_rule() {
    let above =
        "base imports top at base.rs:2 with `crate::top::High`: the layer top is above base";
    check(&[("base", "\nuse crate::top::High;")], above);
    check(&[("base", "fn f() {\n let x = crate::top::High; }")], above);
    check(
        &[("middle", "use crate::base::Low; use crate::side::Side;")],
        "",
    );
}

#[test]
fn imports_are_found_in_each_form() {
    let to_top = "base/part imports top at base/part.rs:1";
    for import in [
        "use super::super::top::High;",
        "use crate::{top::{self, High as Other}};",
        "use crate::top::*;",
        "use crate::Public;",
        "use super::Parents;",
        "use super::top_again::High;",
        "fn f() { super::top_again::high() }",
        "mod inner { use super::super::super::top::High; }",
        "mod inner { fn f() -> super::High {} } pub(crate) use crate::top::High;",
        "#[serde(with = \"crate::top\")] struct A;",
        "struct A { #[cfg(not(test))] a: crate::top::High }",
        "const A: [u8; 3] = [b'\"', b'\\'', b'{']; use crate::top::High;",
        "const A: &str = r#\"\"}\"#; fn f<'a>(a: &'a str) { /* { /* */ */ crate::top::high(a) }",
    ] {
        let sources = [
            (
                "lib",
                "mod base; mod middle; mod side; mod top; pub use top::High as Public;",
            ),
            (
                "base",
                "mod part; use crate::top as top_again; use crate::top::High as Parents;",
            ),
            ("base/part", import),
        ];
        let found = known(&sources, &["base imports top"]);
        assert!(found.starts_with(to_top), "{import}: {found}");
    }
}

#[test]
fn child_modules_are_resolved() {
    let sources = [
        (
            "base",
            "mod part; use part::Part; fn f() { self::part::g(); part::g() }",
        ),
        ("base/part", "pub(super) struct Part; use super::f;"),
    ];
    check(&sources, "");
    let rules = Rules {
        layers: &[&["base"], &["base/part"]],
        never: &[],
        min_imports: 0,
        known: &[],
    };
    let expected = "base/part imports base at base/part.rs:1 with `super::f`: the layer base is above base/part";
    assert_eq!(found(&sources, &rules), expected);
}

#[test]
fn code_of_tests_may_import_all() {
    for code in [
        "#[cfg(test)]\nmod tests { use crate::top::High; }",
        "#[cfg(test)] use crate::{top::High};",
        "#[cfg(any(test, feature = \"test-util\"))] fn f<A, B>() { crate::top::high() }",
        "enum A { #[cfg(feature = \"test-util\")] B(crate::top::High), C }",
        "// use crate::top::High;\n/* use crate::top::High; */ const A: &str = \"use crate::top::High\";",
    ] {
        check(&[("base", code)], "");
    }
    let model = [
        ("base", "#[cfg(test)] mod model;"),
        ("base/model", "use crate::top::High;"),
    ];
    check(&model, "");
}

#[test]
fn what_lib_defines_is_above_all_layers() {
    let lib = "mod base; mod middle; mod side; mod top; pub const VERSION: u8 = 1;";
    let sources = [
        ("lib", lib),
        ("main", "fn main() {}"),
        ("base", "use crate::VERSION;"),
    ];
    check(
        &sources,
        "base imports lib at base.rs:1 with `crate::VERSION`: the layer lib is above base",
    );
}

#[test]
fn a_lower_layer_can_be_forbidden() {
    let sources = [
        ("lib", ""),
        ("top", "use crate::base::Low;"),
        ("base", "pub(crate) struct Low;"),
    ];
    let mut rules = Rules {
        layers: &[&["top"], &["base"]],
        never: &[("top", "base")],
        min_imports: 0,
        known: &[],
    };
    let expected =
        "top imports base at top.rs:1 with `crate::base::Low`: top must not import base here";
    assert_eq!(found(&sources, &rules), expected);
    rules.never = &[("gone", "base")];
    assert_eq!(
        found(&sources, &rules),
        "there is no gone any more, whose rule names base"
    );
}

const CIRCLE: [(&str, &str); 5] = [
    ("base", "mod a; mod b; mod c; mod d; pub(crate) use d::D;"),
    ("base/a", "use super::b::B; pub(super) struct A;"),
    ("base/b", "use super::c::C; pub(super) struct B;"),
    ("base/c", "use super::D; pub(super) struct C;"),
    ("base/d", "use super::a::A; pub(super) struct D;"),
];

#[test]
fn a_circle_of_more_than_three_files_shows_a_way_around() {
    let expected = "base/a is in a circle of 4 files, more than 3: base/a base/b base/c base/d; one way around:
    base/a.rs:1 imports base/b with `super::b::B`
    base/b.rs:1 imports base/c with `super::c::C`
    base/c.rs:1 imports base/d with `super::D`
    base/d.rs:1 imports base/a with `super::a::A`";
    check(&CIRCLE, expected);
    let mut three = CIRCLE;
    three[3].1 = "use super::a::A; pub(super) struct C;";
    check(&three, "");
}

#[test]
fn a_parent_that_defines_something_closes_circles() {
    let mut sources = [
        ("base", "mod a; mod b; mod c; use a::A; use b::B; use c::C;"),
        ("base/a", "pub(super) struct A; use super::b::B;"),
        ("base/b", "pub(super) struct B; use super::c::C;"),
        ("base/c", "pub(super) struct C; use super::A;"),
    ];
    check(&sources, "");
    sources[0].1 = "mod a; mod b; mod c; use a::A; use b::B; use c::C; pub(crate) struct Own;";
    sources[3].1 = "pub(super) struct C; use super::Own;";
    check(
        &sources,
        "base is in a circle of 4 files, more than 3: base base/a base/b base/c",
    );
}

#[test]
fn a_folder_of_more_than_twelve_entries_is_full() {
    let names: Vec<String> = (0..13).map(|n| format!("base/n{n}")).collect();
    let mut sources: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    check(
        &sources,
        "base has 13 entries; a folder has at most 12, where x.rs and x/ are one",
    );
    sources[12].0 = "base/n0/below";
    check(&sources, "");
}

#[test]
fn a_file_of_more_than_500_lines_is_too_long() {
    let tests = format!("\n#[cfg(test)]\nmod tests {{{}}}", "\n".repeat(100));
    let source = |lines| "fn f() {}\n".repeat(lines) + &tests;
    check(&[("base", &source(500))], "");
    check(
        &[("base", &source(501))],
        "base has 501 lines; a file has at most 500 without tests",
    );
}

#[test]
fn exceptions_are_exact_and_end() {
    let upward = [("base", "use crate::top::High;")];
    assert_eq!(known(&upward, &["base imports top"]), "");
    let unneeded = known(&[], &["base imports top"]);
    assert!(
        unneeded.starts_with("\"base imports top\" is no longer so"),
        "{unneeded}"
    );
    assert_eq!(known(&CIRCLE, &["base/c is in a circle of 4 files"]), "");
    assert_eq!(known(&CIRCLE, &["base/c is in a circle of 5 files"]), "");
    let smaller = known(&CIRCLE, &["base/c is in a circle of 3 files"]);
    assert!(
        smaller.contains("base/a is in a circle of 4 files"),
        "{smaller}"
    );
}

#[test]
fn a_file_without_a_layer_and_a_layer_without_files_are_mistakes() {
    assert_eq!(known(&[("new", "")], &[]), "new is in no layer");
    assert_eq!(known(&[("new", "")], &["new belongs to base"]), "");
    assert_eq!(
        known(&[], &["gone belongs to base"]),
        "there is no gone any more, whose rule names base"
    );
    let rules = Rules {
        layers: &[&["base"], &["below"]],
        never: &[],
        min_imports: 0,
        known: &[],
    };
    assert_eq!(
        found(&[("base", "")], &rules),
        "the layer below has no file"
    );
}

#[test]
fn too_few_imports_show_nothing() {
    let rules = Rules {
        layers: &[&["base"]],
        never: &[],
        min_imports: 1,
        known: &[],
    };
    let expected = "only 0 imports were found, fewer than 1: the test shows nothing";
    assert_eq!(found(&[("base", "")], &rules), expected);
}
