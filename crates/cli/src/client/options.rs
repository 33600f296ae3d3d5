//! Options that most commands share: the server, and the format of the output.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command, ValueHint};
use http::HeaderValue;

use crate::client::address::ServerAddress;
use crate::client::api_client::{ApiClient, Token, TokenSource};
use crate::client::complete;
use crate::client::contexts::{Context, Contexts};
use crate::environment::{DEFAULT_SERVER, Environment};
use crate::output::exit::{CommandResult, Failure};
use crate::output::{Format, Screen};

/// Which server, and how its answers are shown. They may stand before or after a command.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Server URL [default: TIDEGATE_SERVER, the current context, or http://127.0.0.1:7070]
    #[arg(long, global = true, help_heading = "Server", value_name = "URL", value_hint = ValueHint::Url)]
    server: Option<String>,
    /// A server of `tidegate context`, instead of its URL
    #[arg(long, global = true, help_heading = "Server", value_name = "NAME", conflicts_with = "server", add = complete::context())]
    context: Option<String>,
    /// File with the token [default: that of the context; without a context, TIDEGATE_TOKEN is the
    /// token itself]
    #[arg(long, global = true, help_heading = "Server", value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// File with certificate authorities to trust besides those of the system [default:
    /// that of the context; without a context, TIDEGATE_CACERT]
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
        self.server.is_some()
            || self.context.is_some()
            || self.token_file.is_some()
            || self.cacert.is_some()
    }

    /// The server and the screen that these options and the environment describe.
    pub(crate) fn open(&self) -> CommandResult<(ApiClient, Screen)> {
        let environment = Environment::read();
        let named = self.server.clone().or(environment.server);
        let context = self.named_context(named.as_deref(), environment.contexts.as_deref())?;
        // A token and certificates of the environment are not meant for the server of a context.
        let (source, token) = match context {
            Some(_) => (TokenSource::Context, None),
            None => (TokenSource::Environment, environment.token),
        };
        let context = context.unwrap_or_else(|| Context {
            server: named.unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
            token_file: None,
            cacert: environment.authorities,
        });
        let token = match self.token_file.as_ref().or(context.token_file.as_ref()) {
            Some(file) => Some(read_token(file)?),
            None => token,
        };
        let token = Token {
            header: token.as_deref().map(header).transpose()?,
            source,
        };
        let target = ServerAddress::parse(&context.server).map_err(Failure::usage)?;
        let authorities = self.cacert.as_ref().or(context.cacert.as_ref());
        let remote = ApiClient::new(target, token, authorities.map(PathBuf::as_path))?;
        Ok((remote, Screen::new(self.output, environment.locale)))
    }

    /// The context of --context; without it, the current one if no option or variable names a server.
    fn named_context(
        &self,
        server: Option<&str>,
        path: Option<&Path>,
    ) -> CommandResult<Option<Context>> {
        if self.context.is_none() && server.is_some() {
            return Ok(None);
        }
        let mut contexts = Contexts::read(path)?;
        let Some(name) = self.context.clone().or_else(|| contexts.current.take()) else {
            return Ok(None);
        };
        contexts.remove(&name).map(Some)
    }

    /// The server, the token file and the certificates that these options name, for later commands.
    pub(crate) fn to_context(&self) -> CommandResult<Context> {
        let server = self.server.clone().ok_or_else(|| {
            Failure::usage(
                "a context needs --server URL, such as --server https://tidegate.example",
            )
        })?;
        ServerAddress::parse(&server).map_err(Failure::usage)?;
        let absolute = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
        Ok(Context {
            server,
            token_file: absolute(&self.token_file)?,
            cacert: absolute(&self.cacert)?,
        })
    }
}

/// The path from the root, as a context is used from other folders, too.
fn absolute(path: &Path) -> CommandResult<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Failure::usage(format!("{} is no path: {error}", path.display())))
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

fn read_token(file: &Path) -> CommandResult<String> {
    let unread = |error| Failure::usage(format!("{} cannot be read: {error}", file.display()));
    fs::read_to_string(file).map_err(unread)
}

fn header(token: &str) -> CommandResult<HeaderValue> {
    let wrong = |_| Failure::usage("the token has characters that a token cannot have");
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(wrong)?;
    value.set_sensitive(true);
    Ok(value)
}
