//! The machine and the time of a run.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::figures::Table;
use crate::machine::printed;

/// Returns the facts that a reader needs to judge the figures, without the name of the machine.
pub(super) fn describe() -> Result<Table> {
    let processors =
        std::fs::read_to_string("/proc/cpuinfo").context("could not read /proc/cpuinfo")?;
    let is_core = |line: &&str| line.starts_with("processor");
    let cores = processors.lines().filter(is_core).count();
    // An export of the sources has no history.
    let commit = first_line("git", &["describe", "--always", "--dirty"]);
    let mut table = Table::new(
        "machine",
        &[
            "date",
            "commit",
            "cores",
            "processor",
            "kernel",
            "Redis",
            "h2load",
        ],
    );
    table.row(&[
        &first_line("date", &["-u", "+%Y-%m-%d %H:%M UTC"])?,
        &commit.as_deref().unwrap_or("unknown"),
        &cores,
        &processor_model(&processors).unwrap_or("unknown"),
        &kernel(&first_line("uname", &["-sr"])?),
        &version(&first_line("redis-server", &["--version"])?),
        &version(&first_line("h2load", &["--version"])?),
    ]);
    Ok(table)
}

/// Returns the model name in the text of /proc/cpuinfo.
fn processor_model(text: &str) -> Option<&str> {
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map(|(_, name)| name.trim())
}

/// Returns the first line that a program prints.
fn first_line(program: &str, arguments: &[&str]) -> Result<String> {
    let text = printed(Command::new(program).args(arguments))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Returns name and version up to the second number. The rest is specific to a distribution or
/// provider.
fn kernel(line: &str) -> String {
    line.splitn(3, '.').take(2).collect::<Vec<_>>().join(".")
}

/// Returns the first word with a dot. `Redis server v=7.0.15 sha=..` and `h2load nghttp2/1.52.0`
/// differ in the text before it.
fn version(line: &str) -> String {
    let word = line
        .split([' ', '=', '/'])
        .find(|word| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit()));
    word.unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_the_text_of_a_program() {
        assert_eq!(
            version("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"),
            "7.0.15"
        );
        assert_eq!(version("h2load nghttp2/1.52.0"), "1.52.0");
        assert_eq!(version("unknown"), "unknown");
        assert_eq!(kernel("Linux 6.18.44-cloud"), "Linux 6.18");
        assert_eq!(kernel("Linux"), "Linux");
    }
}
