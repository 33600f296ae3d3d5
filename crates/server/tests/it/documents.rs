//! What the documents say works.

use std::path::Path;

use tidegate_ratelimit::{Configuration, SameDomain, Source};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// The fenced blocks of a language, in order.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let opening = format!("```{language}\n");
    text.split(opening.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

fn assert_loads(name: &str, text: &str) {
    let source = Source { name: name.to_owned(), text: text.into() };
    let loaded = Configuration::load(&[source], SameDomain::Refuse);
    assert!(loaded.is_ok(), "{name}: {}", loaded.unwrap_err()[0]);
}

#[test]
fn configurations_shown_to_users_load() {
    let readme = read("README.md");
    let shown = blocks(&readme, "yaml");
    assert!(!shown.is_empty(), "README.md shows no configuration");
    shown.iter().for_each(|text| assert_loads("README.md", text));
    assert_loads("example.yaml", &read("examples/envoy/config/example.yaml"));
}

#[test]
fn settings_named_in_documents_exist() {
    let settings = read("docs/settings.md");
    for path in ["README.md", "docs/redis-keys.md", "examples/envoy/README.md"] {
        let text = read(path);
        let words =
            text.split(|letter: char| !(letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_'));
        // Every setting but four short ones has an underscore, and so have few other words in capitals.
        for word in words.filter(|word| {
            word.len() > 4 && word.contains('_') && word.starts_with(|first: char| first.is_ascii_uppercase())
        }) {
            let known = settings.contains(&format!("`{word}`")) || NOT_SETTINGS.contains(&word);
            assert!(known, "{path} names {word}, which docs/settings.md does not know");
        }
    }
}

/// Words in capitals that documents use for something else.
const NOT_SETTINGS: [&str; 2] = ["OVER_LIMIT", "NOT_SERVING"];

/// The crash points are worth what their tests are: each that is named must be there. `…` stands for the rest of a name.
#[test]
fn tests_named_for_crash_points_exist() {
    let text = read("docs/crash-points.md");
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|word| word.contains("::")).collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named {
        let (folder, path) = match name.strip_prefix("server/") {
            Some(path) => ("crates/server", path),
            None => ("crates/workflow", name),
        };
        let (module, function) = path.rsplit_once("::").unwrap();
        let source = read(&format!("{folder}/tests/it/{}.rs", module.replace("::", "/")));
        let wanted = match function.strip_suffix('…') {
            Some(beginning) => format!("fn {beginning}"),
            None => format!("fn {function}("),
        };
        assert!(source.contains(&wanted), "docs/crash-points.md names {name}, which is not there");
    }
}
