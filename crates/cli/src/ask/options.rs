//! The options that most commands share: which server, and how its answers are shown.

use std::path::PathBuf;

use clap::Args;
use http::HeaderValue;

use crate::ask::address::Target;
use crate::ask::environment::Environment;
use crate::ask::exit::Failure;
use crate::ask::remote::Remote;
use crate::screen::{Format, Screen};

/// How answers are shown.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// table, json or wide (all columns, uncut) [default: table on a terminal, json elsewhere]
    #[arg(long, short, global = true, help_heading = "Output", value_name = "FORMAT", hide_possible_values = true)]
    output: Option<Format>,
}

/// Which server, and how its answers are shown.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
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
    /// The screen that these options and the environment say.
    #[must_use]
    pub fn screen(&self) -> Screen {
        Screen::new(self.output, Environment::read().locale)
    }
}

impl Options {
    /// The server and the screen that these options and the environment say.
    pub(crate) fn open(&self) -> Result<(Remote, Screen), Failure> {
        let settings = Environment::read();
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
