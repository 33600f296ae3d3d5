//! What the command line wants to know when it asks a server.

use std::collections::HashMap;

use tidegate_workflow::picture::{Colour, Glyphs};

use super::table::variables;

/// Where the server is, and what the terminal likes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    /// The address of the server.
    pub(crate) server: String,
    /// What it asks for.
    pub(crate) token: Option<String>,
    pub(crate) locale: Locale,
}

/// What a terminal, if there is one, can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Locale {
    pub(crate) colour: Colour,
    pub(crate) glyphs: Glyphs,
}

impl Client {
    pub(crate) fn from_environment() -> Self {
        Self::parse(&super::environment())
    }

    fn parse(given: &HashMap<String, String>) -> Self {
        let of = |name: &str| given.get(name).filter(|value| !value.is_empty());
        let default =
            variables().find(|variable| variable.name == "TIDEGATE_SERVER").expect("it is in the table").default;
        Self {
            server: of("TIDEGATE_SERVER").map_or(default, String::as_str).to_owned(),
            token: of("TIDEGATE_TOKEN").cloned(),
            locale: Locale::parse(given),
        }
    }
}

impl Locale {
    fn parse(given: &HashMap<String, String>) -> Self {
        let of = |name: &str| given.get(name).filter(|value| !value.is_empty());
        let plain = of("NO_COLOR").is_some() || of("TERM").is_some_and(|terminal| terminal == "dumb");
        // The first of these that is set decides; a container in which none is set mostly has a modern terminal around it.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(of).map(|locale| locale.to_lowercase());
        let unicode = locale.is_none_or(|locale| locale.contains("utf-8") || locale.contains("utf8"));
        Self {
            colour: if plain { Colour::None } else { Colour::Ansi },
            glyphs: if unicode { Glyphs::Unicode } else { Glyphs::Ascii },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(given: &[(&str, &str)]) -> Client {
        Client::parse(&given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn an_empty_environment_asks_this_machine_in_colour() {
        let locale = Locale { colour: Colour::Ansi, glyphs: Glyphs::Unicode };
        let client = Client { server: "http://127.0.0.1:7070".to_owned(), token: None, locale };
        assert_eq!(parse(&[]), client);
        assert_eq!(parse(&[("TIDEGATE_SERVER", ""), ("TIDEGATE_TOKEN", ""), ("NO_COLOR", "")]), client);
    }

    #[test]
    fn the_terminal_says_what_it_can_show() {
        let check = |given: &[(&str, &str)], colour, glyphs| {
            assert_eq!(parse(given).locale, Locale { colour, glyphs }, "{given:?}");
        };
        check(&[("NO_COLOR", "1")], Colour::None, Glyphs::Unicode);
        check(&[("TERM", "dumb")], Colour::None, Glyphs::Unicode);
        check(&[("LANG", "C")], Colour::Ansi, Glyphs::Ascii);
        check(&[("LANG", "C"), ("LC_ALL", "de_DE.UTF-8")], Colour::Ansi, Glyphs::Unicode);
        check(&[("LANG", "en_US.utf8"), ("LC_CTYPE", "POSIX")], Colour::Ansi, Glyphs::Ascii);
    }
}
