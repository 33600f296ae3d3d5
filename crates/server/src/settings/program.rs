//! The program name that the process was started with, and its effects.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;

use super::files::MissingRoot;
use super::table::value::go_boolean;

/// Program that the process acts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The server with all commands.
    Tidegate,
    /// The server in the place of the reference's server, with its defaults.
    Ratelimit,
    /// The client of the reference.
    Client,
    /// The configuration check of the reference.
    ConfigCheck,
}

/// Defaults of the reference that differ from those of Tidegate.
const DEFAULTS: [(&str, &str); 4] = [
    ("USE_STATSD", "true"),
    ("RUNTIME_ROOT", "/srv/runtime_data/current"),
    ("TIDEGATE_HTTP_ADDR", ""),
    // Given an address, the API shows the limits, and stores nothing in the Redis of the counters.
    ("TIDEGATE_STORE_URL", "off"),
];
/// Defaults of the reference for the Redis of the counters.
const REDIS: &str = "/var/run/nutcracker/ratelimit.sock";
const REDIS_PER_SECOND: &str = "/var/run/nutcracker/ratelimitpersecond.sock";

impl Program {
    /// The program with this path. An unknown name is the server.
    #[must_use]
    pub fn from_path(path: &OsStr) -> Self {
        match Path::new(path).file_name().and_then(OsStr::to_str) {
            Some("ratelimit") => Self::Ratelimit,
            Some("ratelimit_client") => Self::Client,
            Some("ratelimit_config_check") => Self::ConfigCheck,
            _ => Self::Tidegate,
        }
    }

    /// The program that this process was started as.
    pub(crate) fn started() -> Self {
        std::env::args_os()
            .next()
            .map_or(Self::Tidegate, |path| Self::from_path(&path))
    }

    /// Handling of a configuration folder that does not exist at start.
    pub(super) fn missing_root(self) -> MissingRoot {
        if self == Self::Ratelimit {
            MissingRoot::Awaited
        } else {
            MissingRoot::Refused
        }
    }

    /// Adds the defaults of this program to variables that are not set.
    pub(super) fn add_defaults(self, given: &mut HashMap<String, String>) {
        if self != Self::Ratelimit {
            return;
        }
        let is_on = |name: &str| given.get(name).and_then(|text| go_boolean(text)) == Some(true);
        let memcached = given
            .get("BACKEND_TYPE")
            .is_some_and(|kind| kind.eq_ignore_ascii_case("memcache"));
        let redis = (!memcached).then_some(("REDIS_URL", REDIS));
        let second = is_on("REDIS_PERSECOND").then_some(("REDIS_PERSECOND_URL", REDIS_PER_SECOND));
        for (name, value) in DEFAULTS.into_iter().chain(redis).chain(second) {
            given
                .entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_the_path_decides() {
        for (path, program) in [
            ("/bin/ratelimit", Program::Ratelimit),
            ("ratelimit", Program::Ratelimit),
            ("/usr/local/bin/tidegate", Program::Tidegate),
            ("./ratelimit_client", Program::Client),
            ("/bin/ratelimit_config_check", Program::ConfigCheck),
            ("/bin/ratelimit/other", Program::Tidegate),
            ("", Program::Tidegate),
        ] {
            assert_eq!(Program::from_path(OsStr::new(path)), program, "{path}");
        }
    }

    #[test]
    fn the_defaults_of_the_reference_are_for_its_name_only() {
        let complete = |program: Program, given: &[(&str, &str)]| {
            let mut all = given
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            program.add_defaults(&mut all);
            let mut all: Vec<_> = all
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            all.sort();
            all.join(" ")
        };
        assert_eq!(complete(Program::Tidegate, &[]), "");
        let all = format!(
            "REDIS_URL={REDIS} RUNTIME_ROOT=/srv/runtime_data/current TIDEGATE_HTTP_ADDR= TIDEGATE_STORE_URL=off USE_STATSD=true"
        );
        assert_eq!(complete(Program::Ratelimit, &[]), all);
        let given = [
            ("USE_STATSD", "false"),
            ("REDIS_URL", "a:1"),
            ("RUNTIME_ROOT", "/r"),
            ("TIDEGATE_HTTP_ADDR", "b:1"),
        ];
        assert_eq!(
            complete(Program::Ratelimit, &given),
            "REDIS_URL=a:1 RUNTIME_ROOT=/r TIDEGATE_HTTP_ADDR=b:1 TIDEGATE_STORE_URL=off USE_STATSD=false"
        );
        assert!(
            complete(Program::Ratelimit, &[("REDIS_PERSECOND", "true")]).contains(REDIS_PER_SECOND)
        );
        assert!(
            !complete(Program::Ratelimit, &[("BACKEND_TYPE", "memcache")]).contains("REDIS_URL")
        );
    }
}
