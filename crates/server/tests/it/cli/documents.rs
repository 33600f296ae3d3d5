//! What docs/cli.md says, beside what the program says of itself.

use super::*;
use crate::support::repository;

fn help(path: &[&str]) -> String {
    run(&mut binary(&[path, &["--help"]].concat())).expect(DONE).out
}

/// Names of the commands below one, as its help lists them.
fn below(path: &[&str]) -> Vec<String> {
    let text = help(path);
    let Some((_, commands)) = text.split_once("\nCommands:\n") else { return Vec::new() };
    let lines = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

#[test]
fn every_command_is_documented_with_its_example() {
    let page = std::fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let mut commands = 0;
    for noun in below(&[]) {
        let verbs = below(&[&noun]);
        let paths = verbs.iter().map(|verb| vec![noun.as_str(), verb]);
        let paths: Vec<Vec<&str>> = if verbs.is_empty() { vec![vec![&noun]] } else { paths.collect() };
        for path in paths {
            let text = help(&path);
            let (_, example) =
                text.split_once("\nExample:\n").unwrap_or_else(|| panic!("{path:?} has no example:\n{text}"));
            assert!(page.contains(&format!("| `{}` |", path.join(" "))), "docs/cli.md has no row for {path:?}");
            assert!(page.contains(example.trim()), "docs/cli.md does not show `{}`", example.trim());
            commands += 1;
        }
    }
    assert_eq!(commands, 32, "commands that the help lists");
    for verb in ["create", "create_and_start", "start", "stop", "show", "rm", "list", "viz", "migrate"] {
        help(&[verb]);
        assert!(page.contains(&format!("| `{verb}")), "docs/cli.md does not know Gush's {verb}");
    }
}

#[test]
fn every_exit_code_is_documented() {
    let page = std::fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let text = help(&[]);
    let (_, codes) = text.split_once("Exit codes:\n").unwrap();
    let told: Vec<String> = codes
        .lines()
        .filter_map(|line| line.trim().split_once("  "))
        .map(|(code, meaning)| format!("| {code} | {meaning} |"))
        .collect();
    assert_eq!(told.len(), 11, "{codes}");
    told.iter().for_each(|row| assert!(page.contains(row.as_str()), "docs/cli.md has no row {row}"));
}
