//! Examples of each command, in its help.

use clap::Command;

/// Uses of each command.
const EXAMPLES: [&str; 69] = [
    "tidegate serve",
    "tidegate version",
    "tidegate status",
    "tidegate check config/shop.yaml report.yaml",
    "tidegate settings",
    "tidegate demo",
    "tidegate health",
    "tidegate context list",
    "tidegate context set prod --server https://tidegate.example --token-file prod.token",
    "tidegate context use prod",
    "tidegate context rm prod",
    "tidegate completion bash > /etc/bash_completion.d/tidegate",
    "tidegate workflow create report.yaml --tag nightly --key report-2026-11-21",
    "tidegate workflow start 01M7Z85C8H08RJZ5Q5JGPKMY04",
    "tidegate workflow run report.yaml --timeout 1h",
    "tidegate workflow run report.yaml --tag nightly --key report-2026-11-22",
    "tidegate workflow list --status failed,running --since 24h",
    "tidegate workflow list --name report --watch",
    "tidegate workflow list --status failed -o name",
    "tidegate workflow show name:report --jobs failed",
    "tidegate workflow wait key:report-2026-11-21 --timeout 10m",
    "tidegate workflow watch name:report",
    "tidegate workflow cancel --status running --tag nightly",
    "tidegate workflow pause 01M7Z85C8H08RJZ5Q5JGPKMY04",
    "tidegate workflow resume --status paused --name report",
    "tidegate workflow retry --status failed --since 24h",
    "tidegate workflow restart 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch --cascade",
    "tidegate workflow rm --status succeeded --until 30d --dry-run",
    "tidegate workflow expire 01M7Z85C8H08RJZ5Q5JGPKMY04 --after 30d",
    "tidegate workflow graph 01M7Z85C8H08RJZ5Q5JGPKMY04 --form svg --file report.svg",
    "tidegate workflow logs name:report --follow",
    "tidegate workflow count --by-name --since 7d",
    "tidegate job list 01M7Z85C8H08RJZ5Q5JGPKMY04 --state failed",
    "tidegate job show 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch",
    "tidegate job log 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch",
    "tidegate job retry 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch",
    "tidegate job skip 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch",
    "tidegate job mark-succeeded 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch --result '{\"rows\": 3}'",
    "tidegate job cancel 01M7Z85C8H08RJZ5Q5JGPKMY04 fetch",
    "tidegate failure list",
    "tidegate failure list --range 1h --watch",
    "tidegate failure retry CardDeclined --handler bank.charge --dry-run",
    "tidegate queue list",
    "tidegate queue pause default",
    "tidegate queue resume default",
    "tidegate queue limits mail --set limits.yaml",
    "tidegate queue weights mail --set weights.yaml",
    "tidegate handler limits vendor.charge",
    "tidegate worker list",
    "tidegate worker show billing-1",
    "tidegate worker drain billing-1",
    "tidegate worker undrain billing-1",
    "tidegate limit list",
    "tidegate limit list vendor",
    "tidegate limit waiting --queue mail",
    "tidegate limit overrides",
    "tidegate limit pause vendor tenant=acme --for 10m --reason 'they are down'",
    "tidegate limit pause --rule vendor.tenant --gateway",
    "tidegate limit resume vendor tenant=acme",
    "tidegate limit scale --rule vendor.tenant --by 0.5 --for 1h",
    "tidegate limit check vendor tenant=acme",
    "tidegate limit top",
    "TIDEGATE_DATA_DIR=/var/lib/tidegate tidegate store info",
    "TIDEGATE_DATA_DIR=/var/lib/tidegate tidegate store migrate",
    "REDIS_SOCKET_TYPE=tcp REDIS_URL=localhost:6379 tidegate store check",
    "TIDEGATE_DATA_DIR=/var/lib/tidegate tidegate store compact",
    "TIDEGATE_DATA_DIR=/var/lib/tidegate tidegate store backup /backup/workflows.db",
    "tidegate import gush --redis redis://localhost:6379/0 --dry-run",
    "tidegate migrate",
];

/// The command, with examples in the help of each command below it.
#[must_use]
pub fn with_examples(command: Command) -> Command {
    add_examples(command, "")
}

fn add_examples(mut command: Command, path: &str) -> Command {
    let is_use = |example: &&&str| {
        let (_, arguments) = example
            .rsplit_once("tidegate ")
            .expect("an example calls this program");
        arguments == path || arguments.starts_with(&format!("{path} "))
    };
    if !command.has_subcommands() {
        let examples: Vec<&str> = EXAMPLES.iter().filter(is_use).copied().collect();
        let examples = format!("Examples:\n  {}", examples.join("\n  "));
        let rest = command.get_after_help();
        let rest = rest.map(|rest| format!("\n\n{rest}")).unwrap_or_default();
        command = command.after_help(examples + &rest);
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
