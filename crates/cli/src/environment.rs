//! The environment variables of the command line: the server, the token, and what the terminal can
//! show.

use std::env;
use std::path::{Path, PathBuf};

/// The default server.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7070";

/// Settings that the command line reads from environment variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// The address of the server.
    pub(crate) server: Option<String>,
    /// The token for it.
    pub(crate) token: Option<String>,
    /// File with certificate authorities to trust.
    pub(crate) authorities: Option<PathBuf>,
    /// File with the names of servers.
    pub(crate) contexts: Option<PathBuf>,
    pub(crate) locale: Locale,
}

/// Colours and characters that the terminal can show, as the environment describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Locale {
    pub(crate) colour: Colour,
    pub(crate) glyphs: Glyphs,
}

/// Whether a terminal shows colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    None,
    Ansi,
}

/// The characters that a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Glyphs {
    Ascii,
    Unicode,
}

impl Environment {
    /// Reads the variables of this process that are meant for the command line.
    #[must_use]
    pub fn read() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one reader of the environment in this crate"
        )]
        Self::parse(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn parse(get: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| get(name).filter(|value| !value.is_empty());
        Self {
            server: variable("TIDEGATE_SERVER"),
            token: variable("TIDEGATE_TOKEN"),
            authorities: variable("TIDEGATE_CACERT").map(PathBuf::from),
            contexts: variable("XDG_CONFIG_HOME")
                .map(PathBuf::from)
                .filter(|folder| folder.is_absolute())
                .or_else(|| variable("HOME").map(|folder| Path::new(&folder).join(".config")))
                .map(|folder| folder.join("tidegate/contexts.json")),
            locale: Locale::parse(variable),
        }
    }
}

impl Locale {
    fn parse(variable: impl Fn(&str) -> Option<String>) -> Self {
        let plain = variable("NO_COLOR").is_some()
            || variable("TERM").is_some_and(|terminal| terminal == "dumb");
        // The first of these that is set decides. In a container none is set, and most terminals
        // around one are modern.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
            .into_iter()
            .find_map(variable)
            .map(|locale| locale.to_lowercase());
        let unicode =
            locale.is_none_or(|locale| locale.contains("utf-8") || locale.contains("utf8"));
        Self {
            colour: if plain { Colour::None } else { Colour::Ansi },
            glyphs: if unicode {
                Glyphs::Unicode
            } else {
                Glyphs::Ascii
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &[(&str, &str)]) -> Environment {
        let variable = |name: &str| {
            given
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Environment::parse(variable)
    }

    #[test]
    fn an_empty_environment_asks_this_machine_in_colour() {
        let locale = Locale {
            colour: Colour::Ansi,
            glyphs: Glyphs::Unicode,
        };
        let environment = Environment {
            server: None,
            token: None,
            authorities: None,
            contexts: None,
            locale,
        };
        assert_eq!(parse(&[]), environment);
        assert_eq!(
            parse(&[
                ("TIDEGATE_SERVER", ""),
                ("TIDEGATE_TOKEN", ""),
                ("NO_COLOR", "")
            ]),
            environment
        );
    }

    #[test]
    fn the_terminal_says_what_it_can_show() {
        let check = |given: &[(&str, &str)], colour, glyphs| {
            assert_eq!(parse(given).locale, Locale { colour, glyphs }, "{given:?}");
        };
        check(&[("NO_COLOR", "1")], Colour::None, Glyphs::Unicode);
        check(&[("TERM", "dumb")], Colour::None, Glyphs::Unicode);
        check(&[("LANG", "C")], Colour::Ansi, Glyphs::Ascii);
        check(
            &[("LANG", "C"), ("LC_ALL", "de_DE.UTF-8")],
            Colour::Ansi,
            Glyphs::Unicode,
        );
        check(
            &[("LANG", "en_US.utf8"), ("LC_CTYPE", "POSIX")],
            Colour::Ansi,
            Glyphs::Ascii,
        );
    }
}
