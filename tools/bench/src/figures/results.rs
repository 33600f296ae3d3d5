//! What a comparison found: kept as JSON, shown as tables.

use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::sheet::Sheet;

/// The figures of a comparison. Its tables are made of nothing else, so they can be made again from a file.
pub(crate) trait Results: Serialize + DeserializeOwned {
    /// The name of its file, and of the command that measures it.
    const NAME: &str;

    fn tables(&self) -> Vec<Table>;
}

/// A table with the name that documents know it by.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) sheet: Sheet,
}

impl Table {
    pub(crate) fn new(name: &'static str, sheet: Sheet) -> Self {
        Self { name, sheet }
    }
}

/// Prints the tables and writes the figures to a file in `folder`.
pub(crate) fn finish<R: Results>(results: &R, folder: &Path) -> anyhow::Result<()> {
    for table in results.tables() {
        println!("{}", table.sheet);
    }
    write_json(&folder.join(R::NAME).with_extension("json"), results)
}

/// Writes figures to a file, whose folder is made if there is none, and says where they are.
pub(crate) fn write_json(path: &Path, figures: &impl Serialize) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("could not make {}", parent.display()))?;
    }
    std::fs::write(path, serde_json::to_string_pretty(figures)? + "\n")
        .with_context(|| format!("could not write {}", path.display()))?;
    println!("The figures are in {}.", path.display());
    Ok(())
}

/// Reads figures that [`write_json`] wrote.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("could not read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} does not have the expected figures", path.display()))
}
