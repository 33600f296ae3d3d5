//! Options that most commands share: the server, and the format of the output.

use std::path::PathBuf;

use clap::{Args, Command, ValueHint};
use http::HeaderValue;

use crate::client::address::ServerAddress;
use crate::client::api_client::ApiClient;
use crate::environment::Environment;
use crate::output::exit::{CommandResult, Failure};
use crate::output::{Format, Screen};

/// Which server, and how its answers are shown. They may stand before or after a command.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Server URL [default: TIDEGATE_SERVER, or http://127.0.0.1:7070]
    #[arg(long, global = true, help_heading = "Server", value_name = "URL", value_hint = ValueHint::Url)]
    server: Option<String>,
    /// File with the token; TIDEGATE_TOKEN is the token itself
    #[arg(long, global = true, help_heading = "Server", value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// File with certificate authorities to trust besides those of the system [default:
    /// TIDEGATE_CACERT]
    #[arg(long, global = true, help_heading = "Server", value_name = "FILE", value_hint = ValueHint::FilePath)]
    cacert: Option<PathBuf>,
    /// table, wide (all columns), json, yaml or name (only ids or names) [default: table]
    #[arg(
        long,
        short,
        global = true,
        help_heading = "Output",
        value_name = "FORM",
        hide_possible_values = true
    )]
    output: Option<Format>,
}

impl Options {
    /// The screen that these options and the environment describe.
    #[must_use]
    pub fn screen(&self) -> Screen {
        Screen::new(self.output, Environment::read().locale)
    }

    /// Whether any of these options was given.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.output.is_some() || self.names_server()
    }

    /// Whether any option that names a server was given.
    #[must_use]
    pub fn names_server(&self) -> bool {
        self.server.is_some() || self.token_file.is_some() || self.cacert.is_some()
    }

    /// The server and the screen that these options and the environment describe.
    pub(crate) fn open(&self) -> CommandResult<(ApiClient, Screen)> {
        let settings = Environment::read();
        let token = match &self.token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                Some(text.map_err(|error| {
                    Failure::usage(format!("{} cannot be read: {error}", file.display()))
                })?)
            }
            None => settings.token,
        };
        let token = token.as_deref().map(header).transpose()?;
        let target = ServerAddress::parse(self.server.as_ref().unwrap_or(&settings.server))
            .map_err(Failure::usage)?;
        let authorities = self.cacert.as_ref().or(settings.authorities.as_ref());
        let remote = ApiClient::new(target, token, authorities.map(PathBuf::as_path))?;
        Ok((remote, Screen::new(self.output, settings.locale)))
    }
}

/// Hides options in the help of a command that does not accept them.
#[must_use]
pub fn without_options(command: Command, names: &[&str]) -> Command {
    let all = Options::augment_args(Command::new("options"));
    let named = all
        .get_arguments()
        .filter(|argument| names.contains(&argument.get_id().as_str()));
    command.args(named.map(|argument| argument.clone().hide(true)))
}

fn header(token: &str) -> CommandResult<HeaderValue> {
    let wrong = |_| Failure::usage("the token has characters that a token cannot have");
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(wrong)?;
    value.set_sensitive(true);
    Ok(value)
}
