//! Tables in a Markdown document, between two comments each.

use anyhow::{Context as _, ensure};

use crate::figures::Table;

const START: &str = "<!-- table ";
const END: &str = "<!-- end -->";

/// Returns the text with the tables of these names between their comments. Fails unless the
/// document names each table exactly once, so that no table is lost or stale.
pub(super) fn fill(text: &str, tables: &[Table]) -> anyhow::Result<String> {
    let mut filled = String::with_capacity(text.len());
    let mut named = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(START) {
        let (name, after) = after
            .split_once(" -->")
            .context("a table's comment does not end")?;
        let (_, after) = after
            .split_once(END)
            .with_context(|| format!("the table '{name}' has no {END}"))?;
        let table = tables.iter().find(|table| table.name == name);
        let table = table.with_context(|| format!("the run has no table '{name}'"))?;
        filled.push_str(&format!("{before}{START}{name} -->\n{table}{END}"));
        named.push(name);
        rest = after;
    }
    filled.push_str(rest);
    for table in tables {
        let times = named.iter().filter(|name| **name == table.name).count();
        ensure!(
            times == 1,
            "the table '{}' is in the document {times} times",
            table.name
        );
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(names: &[&str]) -> Vec<Table> {
        let table = |name: &&str| Table::new(name, &[name]);
        names.iter().map(table).collect()
    }

    #[test]
    fn tables_replace_what_is_between_their_comments() {
        let text = "a\n<!-- table one -->\nold\n<!-- end -->\nb\n<!-- table two --><!-- end -->";
        let expected = "a\n<!-- table one -->\n| one |\n|---|\n<!-- end -->\nb\n<!-- table two -->\n| two |\n|---|\n<!-- end -->";
        let filled = fill(text, &tables(&["two", "one"])).unwrap();
        assert_eq!(filled, expected);
        assert_eq!(fill(&filled, &tables(&["one", "two"])).unwrap(), expected);
    }

    #[test]
    fn a_document_and_a_run_have_the_same_tables() {
        for text in [
            "",
            "<!-- table two --><!-- end -->",
            "<!-- table one -->",
            "<!-- table one --><!-- end --><!-- table one --><!-- end -->",
        ] {
            assert!(fill(text, &tables(&["one"])).is_err(), "{text}");
        }
    }
}
