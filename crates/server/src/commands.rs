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

use clap::{
    ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueHint,
};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use tidegate_cli::{
    CommandResult, Details, Exit, Failure, Options, print, print_failure, with_examples,
    without_file_names, without_options, write_failure,
};

use crate::rls::reload::ConfigOrigin;
use crate::settings::{self, Program, Settings};
use crate::supervise::runtime::current_thread_runtime;

/// Rate limits for Envoy, and workflows whose jobs obey the same limits.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = crate::VERSION, max_term_width = 100, disable_version_flag = true)]
struct Arguments {
    /// Print the version
    #[arg(long, short = 'v', short_alias = 'V', action = ArgAction::Version)]
    version: Option<bool>,
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Option<Command>,
}

/// The variable with which a shell asks for completions.
const COMPLETION_VARIABLE: &str = "TIDEGATE_COMPLETE";

/// The commands of the help, by what they are for.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Server", &["serve", "demo", "status", "health", "settings"]),
    ("Rate limits", &["limit", "check"]),
    (
        "Workflows",
        &[
            "workflow", "job", "failure", "queue", "handler", "worker", "import",
        ],
    ),
    (
        "Maintenance",
        &["context", "store", "completion", "version"],
    ),
];

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the server; `tidegate` alone does, too
    Serve,
    /// Check limits and workflow definitions in files, without a server
    Check(Check),
    /// Print all settings with their values, or explain one
    Settings(SettingsArgs),
    /// Start a server in memory with sample limits, jobs and traffic
    Demo,
    /// Ask the server of this machine for its health, in a container
    Health,
    #[command(flatten)]
    Client(tidegate_cli::Command),
    /// Show, migrate, check and copy the store, without a server
    Store(store::StoreCommand),
    /// Import workflows of other programs
    Import(import::Import),
    /// Print a script that completes commands in a shell
    Completion(Completion),
    /// Print the version
    Version,
    /// Migrate the store to the layout of this version: store migrate
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
    /// Only those that are set, with what sets them
    #[arg(long, conflicts_with_all = ["describe", "markdown"])]
    set: bool,
    /// Explain one setting
    #[arg(long, value_name = "NAME", conflicts_with = "markdown")]
    describe: Option<String>,
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
Settings of the server are environment variables: `tidegate settings` prints them. The verbs of Gush work too: create, \
create_and_start, start, stop, show, rm, list, viz, migrate.

Exit codes:
{}",
        Exit::listed()
    );
    with_groups(with_examples(arguments().after_help(about)))
}

/// Lists the commands by what they are for.
fn with_groups(command: clap::Command) -> clap::Command {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text += heading;
        text += ":\n";
        for name in names {
            let about = command
                .find_subcommand(name)
                .and_then(clap::Command::get_about)
                .expect("a listed command exists and says what it does");
            text += &format!("  {name:<11} {about}\n");
        }
        text.push('\n');
    }
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{text}Options:\n{{options}}{{after-help}}"
    ))
}

/// The command line. The options of the server and of the output are in the first help only, and a
/// command that accepts some of them shows those.
fn arguments() -> clap::Command {
    fn hide(command: clap::Command, names: &[impl AsRef<str>], options: &[&str]) -> clap::Command {
        names.iter().fold(command, |command, name| {
            command.mut_subcommand(name.as_ref(), |command| without_options(command, options))
        })
    }
    let command = without_file_names(Arguments::command());
    let offline = ["store", "import", "migrate"];
    let command = hide(
        command,
        &offline,
        &["server", "context", "token_file", "cacert"],
    );
    let plain = [
        "serve",
        "check",
        "settings",
        "demo",
        "health",
        "completion",
        "version",
    ];
    let all = ["server", "context", "token_file", "cacert", "output"];
    let command = hide(command, &plain, &all);
    let command = hide(command, &client_commands(), &all);
    client_commands().iter().fold(command, |command, name| {
        command.mut_subcommand(name, with_options_hint)
    })
}

/// Says where the hidden options are.
fn with_options_hint(command: clap::Command) -> clap::Command {
    command
        .after_help("Options of the server and of the output: tidegate --help")
        .mut_subcommands(with_options_hint)
}

/// Names of the commands that ask a server.
fn client_commands() -> Vec<String> {
    let client = tidegate_cli::Command::augment_subcommands(clap::Command::new("client"));
    client
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect()
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
    // For a shell that completes a command; it ends the process.
    CompleteEnv::with_factory(arguments)
        .var(COMPLETION_VARIABLE)
        .complete();
    let parsed = command()
        .try_get_matches_from(process_arguments())
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let Arguments {
        options, command, ..
    } = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return print_usage(&error),
    };
    match command.unwrap_or(Command::Serve) {
        Command::Serve | Command::Demo if options.is_given() => {
            let text = "--server, --context, --token-file, --cacert and --output need a command that asks a server";
            exit_code(Err(Failure::usage(text)), &options)
        }
        Command::Serve => serve::serve(),
        Command::Demo => serve::demo(),
        command => exit_code(start(command, &options), &options),
    }
}

/// Prints the help, the version, or a usage error.
fn print_usage(error: &clap::Error) -> ExitCode {
    let printed = error.print().and_then(|()| io::stdout().flush());
    // A usage error stays one even if its text cannot be printed. Help and the version are regular
    // output.
    if error.use_stderr() {
        return Exit::Usage.into();
    }
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let failure = write_failure(&error);
            print_failure(&failure, Details::Request);
            failure.exit.into()
        }
    }
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
            "this command asks no server: it takes no --server, --context, --token-file, --cacert{which}"
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

fn exit_code(done: CommandResult, options: &Options) -> ExitCode {
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            print_failure(&failure, options.screen().failure_details());
            failure.exit.into()
        }
    }
}

/// Prints the effective values, and the warnings and errors that a server would log for them; or one
/// setting, or the page of all.
fn show_settings(arguments: &SettingsArgs) -> CommandResult {
    if arguments.markdown {
        return print(&settings::markdown()).map(|()| Exit::Done);
    }
    if let Some(name) = &arguments.describe {
        let text = settings::describe(name).map_err(Failure::usage)?;
        return print(&text).map(|()| Exit::Done);
    }
    print(&if arguments.set {
        settings::given()
    } else {
        settings::effective()
    })?;
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

/// Prints a script with which a shell asks this program for completions.
fn print_completion(shell: Shell) -> CommandResult {
    let shells = Shells::builtins();
    let completer = shells
        .completer(&shell.to_string())
        .expect("each shell has a completer");
    let mut script = Vec::new();
    completer
        .write_registration(
            COMPLETION_VARIABLE,
            "tidegate",
            "tidegate",
            "tidegate",
            &mut script,
        )
        .map_err(|error| write_failure(&error))?;
    print(&String::from_utf8_lossy(&script)).map(|()| Exit::Done)
}

async fn run(command: Command, options: &Options) -> CommandResult {
    match command {
        Command::Check(arguments) => print_report(&check::check(&arguments)),
        Command::Settings(arguments) => show_settings(&arguments),
        Command::Serve | Command::Demo => {
            Err(Failure::usage("a server cannot run beside another command"))
        }
        Command::Health => health::health(),
        Command::Version => print(&format!("tidegate {}\n", crate::VERSION)).map(|()| Exit::Done),
        Command::Completion(Completion { shell }) => print_completion(shell),
        Command::Client(command) => command.run(options).await,
        Command::Store(store) => store.run(&options.screen()).await,
        Command::Import(import) => import.run(&options.screen()).await,
        Command::Migrate(arguments) => {
            store::run(store::StoreVerb::Migrate(arguments), &options.screen()).await
        }
    }
}
