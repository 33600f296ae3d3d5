//! One example for each command, in its help.

use clap::Command;

/// Commands, and how each is used.
const EXAMPLES: [(&str, &str); 48] = [
    ("check", "tidegate check config/shop.yaml report.yaml"),
    ("settings", "tidegate settings"),
    ("demo", "tidegate demo"),
    ("health", "tidegate health"),
    (
        "completion",
        "tidegate completion bash > /etc/bash_completion.d/tidegate",
    ),
    (
        "workflow create",
        "tidegate workflow create report.yaml --tag nightly --key report-2026-11-21",
    ),
    (
        "workflow start",
        "tidegate workflow start 01M7Z85C8H08RJZ5Q5JGPKMY04",
    ),
    (
        "workflow run",
        "tidegate workflow run report.yaml --timeout 1h",
    ),
    (
        "workflow list",
        "tidegate workflow list --status failed,running --since 24h",
    ),
    (
        "workflow show",
        "tidegate workflow show name:report --jobs failed",
    ),
    (
        "workflow wait",
        "tidegate workflow wait key:report-2026-11-21 --timeout 10m",
    ),
    ("workflow watch", "tidegate workflow watch name:report"),
    (
        "workflow cancel",
        "tidegate workflow cancel --status running --tag nightly",
    ),
    (
        "workflow pause",
        "tidegate workflow pause 01M7Z85C8H08RJZ5Q5JGPKMY04",
    ),
    (
        "workflow resume",
        "tidegate workflow resume --status paused --name report",
    ),
    (
        "workflow retry",
        "tidegate workflow retry --status failed --since 24h",
    ),
    (
        "workflow restart",
        "tidegate workflow restart 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch --cascade",
    ),
    (
        "workflow rm",
        "tidegate workflow rm --status succeeded --until 30d --dry-run",
    ),
    (
        "workflow expire",
        "tidegate workflow expire 01M7Z85C8H08RJZ5Q5JGPKMY04 --after 30d",
    ),
    (
        "workflow graph",
        "tidegate workflow graph 01M7Z85C8H08RJZ5Q5JGPKMY04 --form svg --file report.svg",
    ),
    (
        "workflow count",
        "tidegate workflow count --by-name --since 7d",
    ),
    (
        "job list",
        "tidegate job list 01M7Z85C8H08RJZ5Q5JGPKMY04 --state failed",
    ),
    (
        "job show",
        "tidegate job show 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch",
    ),
    (
        "job log",
        "tidegate job log 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch",
    ),
    (
        "job retry",
        "tidegate job retry 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch",
    ),
    (
        "job skip",
        "tidegate job skip 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch",
    ),
    (
        "job mark-succeeded",
        "tidegate job mark-succeeded 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch --result '{\"rows\": 3}'",
    ),
    (
        "job cancel",
        "tidegate job cancel 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch",
    ),
    ("queue list", "tidegate queue list"),
    ("queue pause", "tidegate queue pause default"),
    ("queue resume", "tidegate queue resume default"),
    (
        "queue limits",
        "tidegate queue limits mail --set limits.yaml",
    ),
    (
        "queue weights",
        "tidegate queue weights mail --set weights.yaml",
    ),
    ("handler limits", "tidegate handler limits vendor.charge"),
    ("limit list", "tidegate limit list --queue mail"),
    ("limit overrides", "tidegate limit overrides"),
    (
        "limit pause",
        "tidegate limit pause vendor tenant=acme --for 10m --reason 'they are down'",
    ),
    ("limit resume", "tidegate limit resume vendor tenant=acme"),
    (
        "limit scale",
        "tidegate limit scale --rule vendor.tenant --by 0.5 --for 1h",
    ),
    ("limit check", "tidegate limit check vendor tenant=acme"),
    ("limit top", "tidegate limit top"),
    (
        "store info",
        "TIDEGATE_DATA_DIR=/var/lib/tidegate tidegate store info",
    ),
    (
        "store migrate",
        "TIDEGATE_DATA_DIR=/var/lib/tidegate tidegate store migrate",
    ),
    (
        "store check",
        "REDIS_SOCKET_TYPE=tcp REDIS_URL=localhost:6379 tidegate store check",
    ),
    (
        "store compact",
        "TIDEGATE_DATA_DIR=/var/lib/tidegate tidegate store compact",
    ),
    (
        "store backup",
        "TIDEGATE_DATA_DIR=/var/lib/tidegate tidegate store backup /backup/workflows.db",
    ),
    (
        "import gush",
        "tidegate import gush --redis redis://localhost:6379/0 --dry-run",
    ),
    ("migrate", "tidegate migrate"),
];

/// The command, with an example in the help of each command below it.
#[must_use]
pub fn with_examples(command: Command) -> Command {
    add_examples(command, "")
}

fn add_examples(mut command: Command, path: &str) -> Command {
    if let Some((_, example)) = EXAMPLES.iter().find(|(of, _)| *of == path) {
        command = command.after_help(format!("Example:\n  {example}"));
    }
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path} {name}")
        };
        command.mut_subcommand(name, |command| add_examples(command, &path))
    })
}
