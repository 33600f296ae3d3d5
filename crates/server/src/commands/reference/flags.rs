//! Flags in the syntax of Go programs: `-x`, `--x`, `-x=v`, and `-x v` unless it is a switch.

use std::ffi::OsString;
use std::fmt::Write as _;

/// A flag.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) kind: FlagKind,
    pub(super) default: &'static str,
    pub(super) usage: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum FlagKind {
    Text,
    /// A switch: its value can only follow a `=`.
    Switch,
    /// May be given several times. The function checks a value, and returns the reason if it is
    /// invalid.
    List(fn(&str) -> Result<(), &'static str>),
}

/// Values of the flags that were given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FlagValues(Vec<(&'static str, String)>);

/// Reason to end before the tool runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParseStop {
    Help,
    Mistake(String),
}

impl FlagValues {
    /// All values of a flag, in order.
    pub(super) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(of, _)| *of == name)
            .map(|(_, value)| value.as_str())
    }

    /// Value of a flag. The last of several counts.
    pub(super) fn text<'a>(&'a self, flags: &[Flag], name: &str) -> &'a str {
        let default = || {
            flags
                .iter()
                .find(|flag| flag.name == name)
                .map_or("", |flag| flag.default)
        };
        self.all(name).last().unwrap_or_else(default)
    }

    pub(super) fn is_on(&self, flags: &[Flag], name: &str) -> bool {
        self.text(flags, name) == "true"
    }
}

/// Parses arguments up to the first that is not a flag, or up to `--`. The rest is ignored, as in
/// the reference.
pub(super) fn parse(
    flags: &[Flag],
    arguments: impl Iterator<Item = OsString>,
) -> Result<FlagValues, ParseStop> {
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let mut flag_values = FlagValues::default();
    while let Some(argument) = arguments.next() {
        let Some(rest) = flag_text(&argument)? else {
            break;
        };
        let (name, value) = rest
            .split_once('=')
            .map_or((rest, None), |(name, value)| (name, Some(value.to_owned())));
        let flag = flags.iter().find(|flag| flag.name == name);
        let flag = flag.ok_or_else(|| unknown_flag(name))?;
        let value = match (value, flag.kind) {
            (Some(value), _) => value,
            (None, FlagKind::Switch) => "true".to_owned(),
            (None, _) => arguments
                .next()
                .ok_or_else(|| mistake("flag needs an argument:", name))?,
        };
        flag_values.0.push((flag.name, checked(flag, value)?));
    }
    Ok(flag_values)
}

/// A flag without its dashes. None if the argument is no flag, or `--`.
fn flag_text(argument: &str) -> Result<Option<&str>, ParseStop> {
    let Some(rest) = argument.strip_prefix('-') else {
        return Ok(None);
    };
    if matches!(rest, "" | "-") {
        return Ok(None);
    }
    let rest = rest.strip_prefix('-').unwrap_or(rest);
    if rest.starts_with(['-', '=']) {
        return Err(ParseStop::Mistake(format!("bad flag syntax: {argument}")));
    }
    Ok(Some(rest))
}

fn unknown_flag(name: &str) -> ParseStop {
    match name {
        "h" | "help" => ParseStop::Help,
        _ => mistake("flag provided but not defined:", name),
    }
}

fn mistake(what: &str, name: &str) -> ParseStop {
    ParseStop::Mistake(format!("{what} -{name}"))
}

fn checked(flag: &Flag, value: String) -> Result<String, ParseStop> {
    let Flag { name, .. } = flag;
    match flag.kind {
        FlagKind::Text => Ok(value),
        FlagKind::Switch => match crate::settings::go_boolean(&value) {
            Some(on) => Ok(on.to_string()),
            None => Err(ParseStop::Mistake(format!(
                "invalid boolean value {value:?} for -{name}: parse error"
            ))),
        },
        FlagKind::List(check) => match check(&value) {
            Ok(()) => Ok(value),
            Err(reason) => Err(ParseStop::Mistake(format!(
                "invalid value {value:?} for flag -{name}: {reason}"
            ))),
        },
    }
}

/// Usage text of a program.
pub(super) fn usage(program: &str, flags: &[Flag]) -> String {
    let mut text = format!("Usage of {program}:\n");
    for Flag {
        name,
        kind,
        default,
        usage,
    } in flags
    {
        let kind = match kind {
            FlagKind::Text => " string",
            FlagKind::Switch => "",
            FlagKind::List(_) => " value",
        };
        let default = match *default {
            "" | "false" => String::new(),
            default => format!(" (default {default:?})"),
        };
        let _ = writeln!(text, "  -{name}{kind}\n    \t{usage}{default}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: [Flag; 3] = [
        Flag {
            name: "list",
            kind: FlagKind::List(|value| {
                if value == "bad" {
                    Err("it is bad")
                } else {
                    Ok(())
                }
            }),
            default: "",
            usage: "l",
        },
        Flag {
            name: "on",
            kind: FlagKind::Switch,
            default: "false",
            usage: "o",
        },
        Flag {
            name: "text",
            kind: FlagKind::Text,
            default: "d",
            usage: "t",
        },
    ];

    fn read(arguments: &str) -> Result<FlagValues, ParseStop> {
        parse(&FLAGS, arguments.split_whitespace().map(OsString::from))
    }

    #[test]
    fn flags_are_read_as_go_reads_them() {
        for (arguments, text, on, list) in [
            ("", "d", false, vec![]),
            ("-text a --on", "a", true, vec![]),
            ("--text=a=b -on=false", "a=b", false, vec![]),
            ("-text= -on=T", "", true, vec![]),
            (
                "-text a -text b -list 1 --list=2",
                "b",
                false,
                vec!["1", "2"],
            ),
            ("-on more -text a", "d", true, vec![]),
            ("-- -text a", "d", false, vec![]),
            ("- -text a", "d", false, vec![]),
            ("-text -on", "-on", false, vec![]),
        ] {
            let flag_values = read(arguments).unwrap();
            assert_eq!(
                (
                    flag_values.text(&FLAGS, "text"),
                    flag_values.is_on(&FLAGS, "on")
                ),
                (text, on),
                "{arguments}"
            );
            assert_eq!(
                flag_values.all("list").collect::<Vec<_>>(),
                list,
                "{arguments}"
            );
        }
    }

    #[test]
    fn mistakes_are_told_in_the_words_of_go() {
        for (arguments, expected) in [
            ("-other", "flag provided but not defined: -other"),
            ("--other=1", "flag provided but not defined: -other"),
            ("-text", "flag needs an argument: -text"),
            ("---text", "bad flag syntax: ---text"),
            ("-=a", "bad flag syntax: -=a"),
            (
                "-on=maybe",
                "invalid boolean value \"maybe\" for -on: parse error",
            ),
            (
                "-list bad",
                "invalid value \"bad\" for flag -list: it is bad",
            ),
        ] {
            assert_eq!(
                read(arguments),
                Err(ParseStop::Mistake(expected.to_owned())),
                "{arguments}"
            );
        }
        for help in ["-h", "--help"] {
            assert_eq!(read(help), Err(ParseStop::Help));
        }
        let expected = "Usage of p:\n  -list value\n    \tl\n  -on\n    \to\n  -text string\n    \tt (default \"d\")\n";
        assert_eq!(usage("p", &FLAGS), expected);
    }
}
