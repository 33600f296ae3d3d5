//! The command line. Without a subcommand it is the server; with one, a client (the crate `cli`) or
//! an offline tool.

mod audit;
mod check;
mod findings;
mod health;
mod import;
mod inconsistency;
mod migrate;
mod open_store;
mod reference;
mod rows;
mod serve;
mod store;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use tidegate_cli::{
    CommandResult, Exit, Failure, Options, print, print_failure, with_examples, without_file_names,
    without_options, write_failure,
};

use crate::rls::reload::ConfigOrigin;
use crate::settings::{self, Program, Settings};
use crate::supervise::runtime::current_thread_runtime;

/// A rate limit service for Envoy, and a workflow server. Without a command, it starts the server.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = crate::VERSION, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks rate limit configuration and definitions of workflows, without a server
    Check(Check),
    /// Prints every setting with its value
    Settings(SettingsArgs),
    /// Starts a server in memory with sample limits, workflows, workers and calls, to look at
    Demo,
    /// Asks whether the server of this machine is healthy, for the health check of a container
    Health,
    #[command(flatten)]
    Client(tidegate_cli::Command),
    /// Shows, migrates, checks and copies the store of the workflows, without a server
    Store(store::StoreCommand),
    /// Imports workflows of other programs
    Import(import::Import),
    /// Prints a script that completes commands in a shell
    Completion(Completion),
    /// Migrates the store to the layout of this version: store migrate
    #[command(hide = true)]
    Migrate(migrate::MigrateArgs),
}

#[derive(Debug, Args)]
struct Check {
    /// Files in YAML or JSON, or folders of files; - is standard input
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    /// Allow several files for one domain, as MERGE_DOMAIN_CONFIG does
    #[arg(long)]
    merge_domain_configs: bool,
}

#[derive(Debug, Args)]
struct SettingsArgs {
    /// Print them as the page docs/settings.md
    #[arg(long)]
    markdown: bool,
}

#[derive(Debug, Args)]
struct Completion {
    /// The shell
    shell: Shell,
}

/// The command line with its full help.
fn command() -> clap::Command {
    let about = format!(
        "\
Settings are environment variables; `tidegate settings` lists them. The commands that ask a server read TIDEGATE_SERVER, \
TIDEGATE_TOKEN and TIDEGATE_CACERT. The verbs of Gush are known, too: create, create_and_start, start, stop, show, rm, list, \
viz, migrate.

Exit codes:
{}",
        Exit::listed()
    );
    with_examples(arguments().after_help(about))
}

/// The command line. Each command shows only the options that it accepts.
fn arguments() -> clap::Command {
    let hide = |command: clap::Command, names: &[&str], options: &[&str]| {
        names.iter().fold(command, |command, name| {
            command.mut_subcommand(name, |command| without_options(command, options))
        })
    };
    let command = without_file_names(Arguments::command());
    let offline = ["store", "import", "migrate"];
    let command = hide(command, &offline, &["server", "token_file", "cacert"]);
    let plain = ["check", "settings", "demo", "health", "completion"];
    hide(
        command,
        &plain,
        &["server", "token_file", "cacert", "output"],
    )
}

/// Arguments of the process. A container whose entry point is `/bin/ratelimit` often gets
/// `/bin/ratelimit` as its command, too. The reference ignores its arguments, so this one is
/// dropped.
fn process_arguments() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.len() == 2
        && words
            .iter()
            .all(|word| Program::from_path(word) == Program::Ratelimit)
    {
        words.pop();
    }
    words
}

/// Runs the program, and returns the exit code by the rules of docs/cli.md.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(ended) = reference::run_tool(Program::started()) {
        return ended;
    }
    let parsed = command()
        .try_get_matches_from(process_arguments())
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    match parsed {
        Ok(Arguments {
            options,
            command: None,
        }) if options.is_given() => exit_code(Err(Failure::usage(
            "--server, --token-file, --cacert and --output need a command",
        ))),
        Ok(Arguments { command: None, .. }) => serve::serve(),
        Ok(Arguments {
            options,
            command: Some(Command::Demo),
        }) if !options.is_given() => serve::demo(),
        Ok(Arguments {
            options,
            command: Some(command),
        }) => exit_code(start(command, &options)),
        Err(error) => exit_code(print_usage(error)),
    }
}

/// Prints the help, the version, or a usage error.
fn print_usage(error: clap::Error) -> CommandResult {
    let error = with_server_hint(error);
    let printed = error.print().and_then(|()| io::stdout().flush());
    // A usage error stays one even if its text cannot be printed. Help and the version are regular
    // output.
    if error.use_stderr() {
        return Ok(Exit::Usage);
    }
    printed
        .map(|()| Exit::Done)
        .map_err(|error| write_failure(&error))
}

/// Adds a hint for users who try `serve` or `server`: the server has no command.
fn with_server_hint(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && matches!(word.as_str(), "serve" | "server")
    {
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = "Without a command, tidegate starts the server.".into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

fn start(command: Command, options: &Options) -> CommandResult {
    let is_client = matches!(command, Command::Client(_));
    let prints_objects = is_client
        || matches!(
            command,
            Command::Store(_) | Command::Import(_) | Command::Migrate(_)
        );
    if (!is_client && options.names_server()) || (!prints_objects && options.is_given()) {
        let which = if prints_objects { "" } else { " or --output" };
        return Err(Failure::usage(format!(
            "this command asks no server: it takes no --server, --token-file, --cacert{which}"
        )));
    }
    let runtime = current_thread_runtime().map_err(|error| {
        Failure::unavailable(format!("the system refuses to start a client: {error}"))
    })?;
    let done = runtime.block_on(run(command, options));
    if is_client {
        // A DNS lookup may still run in a thread of the runtime and cannot be cancelled, so the
        // shutdown does not wait for it.
        runtime.shutdown_background();
    }
    done
}

fn exit_code(done: CommandResult) -> ExitCode {
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            print_failure(&failure);
            failure.exit.into()
        }
    }
}

/// Prints the effective values, and the warnings and errors that a server would log for them; or the
/// page of all settings.
fn show_settings(arguments: &SettingsArgs) -> CommandResult {
    if arguments.markdown {
        return print(&settings::markdown()).map(|()| Exit::Done);
    }
    print(&settings::effective())?;
    let (warnings, done) = match Settings::from_environment() {
        Ok(settings) => {
            let origin = ConfigOrigin::new(&settings).map(|_| Exit::Done);
            (
                settings.warnings,
                origin.map_err(|absent| Failure::usage(absent.to_string())),
            )
        }
        Err(problems) => (
            problems.warnings.clone(),
            Err(Failure::usage(problems.to_string())),
        ),
    };
    for warning in warnings {
        // A closed standard error must not change the exit code.
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    done
}

fn print_report(report: &check::Report) -> CommandResult {
    print(&report.text)?;
    Ok(match (report.missing_paths, report.errors) {
        (1.., _) => Exit::Usage,
        (0, 0) => Exit::Done,
        (0, _) => Exit::Failed,
    })
}

/// Prints a script that completes commands in a shell.
fn print_completion(shell: Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut arguments(), "tidegate", &mut script);
    print(&String::from_utf8_lossy(&script)).map(|()| Exit::Done)
}

async fn run(command: Command, options: &Options) -> CommandResult {
    match command {
        Command::Check(arguments) => print_report(&check::check(&arguments)),
        Command::Settings(arguments) => show_settings(&arguments),
        Command::Demo => Err(Failure::usage(
            "the demo is a server of its own, and takes no options",
        )),
        Command::Health => health::health(),
        Command::Completion(Completion { shell }) => print_completion(shell),
        Command::Client(command) => command.run(options).await,
        Command::Store(store) => store.run(&options.screen()).await,
        Command::Import(import) => import.run(&options.screen()).await,
        Command::Migrate(arguments) => {
            store::run(store::StoreVerb::Migrate(arguments), &options.screen()).await
        }
    }
}
