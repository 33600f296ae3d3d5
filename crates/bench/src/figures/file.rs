//! Figures as JSON, for programs.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

/// Writes figures to a file, whose folder is made if there is none, and says where they are.
pub(crate) fn write_json(path: &Path, figures: &Value) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("could not make {}", parent.display()))?;
    }
    std::fs::write(path, serde_json::to_string_pretty(figures)? + "\n")
        .with_context(|| format!("could not write {}", path.display()))?;
    println!("\nThe figures are in {}.", path.display());
    Ok(())
}
