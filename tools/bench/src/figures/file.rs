//! Tables in files.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::table::Table;

/// Writes tables to a file as JSON, creates its folder if it is missing, and prints the path.
pub(crate) fn write_tables(path: &Path, tables: &[Table]) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, serde_json::to_string_pretty(tables)? + "\n"))
        .with_context(|| format!("could not write {}", path.display()))?;
    println!("The figures are in {}.", path.display());
    Ok(())
}

/// Reads a file of [`write_tables`].
pub(crate) fn read_tables(path: &Path) -> Result<Vec<Table>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("could not read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} does not have the expected figures", path.display()))
}
