//! Runs other programs.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Runs a program and returns what it prints. Fails if the program fails.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .with_context(|| format!("could not run {program}; `make bench` installs it"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {error}");
    Ok(String::from_utf8(output.stdout)?)
}
