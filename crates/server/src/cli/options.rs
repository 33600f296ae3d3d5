//! The options that most commands share: which server, and how its answers are shown.

use std::path::PathBuf;

use clap::Args;
use http::HeaderValue;

use super::address::Target;
use super::exit::Failure;
use super::remote::Remote;
use super::screen::{Format, Screen};
use crate::settings::Client;

/// How answers are shown.
#[derive(Debug, Clone, Args)]
pub(super) struct Output {
    /// table, json or wide (all columns, uncut) [default: table on a terminal, json elsewhere]
    #[arg(long, short, global = true, help_heading = "Output", value_name = "FORMAT", hide_possible_values = true)]
    output: Option<Format>,
}

/// Which server, and how its answers are shown.
#[derive(Debug, Clone, Args)]
pub(super) struct Options {
    /// The server to ask [default: TIDEGATE_SERVER, or http://127.0.0.1:7070]
    #[arg(long, global = true, help_heading = "Server", value_name = "URL")]
    server: Option<String>,
    /// File that has the token in it; TIDEGATE_TOKEN has the token itself
    #[arg(long, global = true, help_heading = "Server", value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Output {
    pub(super) fn screen(&self) -> Screen {
        Screen::new(self.output, Client::from_environment().locale)
    }
}

impl Options {
    /// The server and the screen that these options and the environment say.
    pub(super) fn open(&self) -> Result<(Remote, Screen), Failure> {
        let settings = Client::from_environment();
        let token = match &self.token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                Some(text.map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))?)
            }
            None => settings.token,
        };
        let token = token.as_deref().map(header).transpose()?;
        let target = Target::parse(self.server.as_ref().unwrap_or(&settings.server)).map_err(Failure::usage)?;
        Ok((Remote::new(target, token), Screen::new(self.output.output, settings.locale)))
    }
}

fn header(token: &str) -> Result<HeaderValue, Failure> {
    let wrong = |_| Failure::usage("the token has characters that no token has");
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(wrong)?;
    value.set_sensitive(true);
    Ok(value)
}
