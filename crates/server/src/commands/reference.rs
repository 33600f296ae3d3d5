//! The tools of the reference. They are links to this binary, which checks the name that it was
//! started by.

mod client;
mod config_check;
mod flags;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use flags::{Flag, FlagValues, ParseStop};
use tidegate_cli::print;

use crate::settings::Program;

/// Runs the tool `program` with the arguments of the process. Returns `None` if it is the server.
pub(super) fn run_tool(program: Program) -> Option<ExitCode> {
    let arguments = std::env::args_os().skip(1);
    match program {
        Program::Client => Some(run(
            "ratelimit_client",
            &client::FLAGS,
            arguments,
            client::run,
        )),
        Program::ConfigCheck => Some(run(
            "ratelimit_config_check",
            &config_check::FLAGS,
            arguments,
            config_check::run,
        )),
        Program::Tidegate | Program::Ratelimit => None,
    }
}

fn run(
    name: &str,
    flags: &'static [Flag],
    arguments: impl Iterator<Item = OsString>,
    work: fn(&FlagValues) -> Result<(), ToolFailure>,
) -> ExitCode {
    let ended = flags::parse(flags, arguments).map(|flag_values| work(&flag_values));
    match ended {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(ToolFailure(code))) => ExitCode::from(code),
        Err(stop) => {
            let (first, code) = match stop {
                ParseStop::Help => (String::new(), ExitCode::SUCCESS),
                ParseStop::Mistake(mistake) => (mistake + "\n", ExitCode::from(EXIT_USAGE)),
            };
            // A closed standard error must not change the exit code.
            let _ =
                io::stderr().write_all(format!("{first}{}", flags::usage(name, flags)).as_bytes());
            code
        }
    }
}

/// Exit code after a mistake in the arguments.
const EXIT_USAGE: u8 = 2;
/// Exit code after any other failure.
const EXIT_FAILURE: u8 = 1;

/// Exit code of a tool that has already printed the reason.
struct ToolFailure(u8);

/// Prints a line to standard output, where the tools of the reference print everything.
fn print_line(line: &str) -> Result<(), ToolFailure> {
    print(&format!("{line}\n")).map_err(|_| ToolFailure(EXIT_FAILURE))
}

/// Prints the reason of a failure, and returns the failure.
fn fail_with<T>(line: &str) -> Result<T, ToolFailure> {
    print_line(line)?;
    Err(ToolFailure(EXIT_FAILURE))
}

/// An error of the system in the words of Go: `open a/b: no such file or directory`.
fn go_error(operation: &str, path: &str, error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    let first: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_lowercase)
        .collect();
    format!("{operation} {path}: {first}{}", letters.as_str())
}
