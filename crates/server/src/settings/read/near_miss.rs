//! Detection of misspelt settings.

use crate::settings::table::variables;

/// Limit of the edit distance of a misspelling.
const MAX_DISTANCE: usize = 2;
/// Minimum length in letters. Shorter names are ignored: HOME is two letters from HOST.
const MIN_LENGTH: usize = 8;
/// Minimum length in letters of each word of an abbreviated name.
const MIN_WORD: usize = 3;

/// The setting that `name` is probably a misspelling of. None if `name` is a setting, or too far
/// from all of them.
pub(super) fn near_miss(name: &str) -> Option<&'static str> {
    if name.len() < MIN_LENGTH
        || !name.contains('_')
        || variables().any(|variable| variable.name == name)
    {
        return None;
    }
    let names = || {
        variables()
            .map(|variable| variable.name)
            .filter(|known| known.len() >= MIN_LENGTH)
    };
    let similar = names().filter(|known| known.len().abs_diff(name.len()) <= MAX_DISTANCE);
    let misspelt = similar
        .map(|known| (distance(name, known), known))
        .min()
        .filter(|(far, _)| *far <= MAX_DISTANCE);
    misspelt
        .map(|(_, known)| known)
        .or_else(|| names().find(|known| abbreviates(name, known)))
}

/// The setting that equals `name` without the prefix, or the nearest one with the prefix if fewer
/// than half of the letters differ.
pub(super) fn closest(name: &str, prefix: &str) -> Option<&'static str> {
    let rest = name.strip_prefix(prefix)?;
    let names = || variables().map(|variable| variable.name);
    let misspelt = || {
        let ours = names()
            .filter(|ours| ours.starts_with(prefix))
            .map(|ours| (distance(name, ours), ours));
        ours.min()
            .filter(|(far, _)| *far <= rest.len() / 2)
            .map(|(_, ours)| ours)
    };
    names().find(|known| *known == rest).or_else(misspelt)
}

/// Whether each word of `name` is a prefix of the word of `known` at that position: RUNTIME_SUBDIR,
/// REDIS_POOL.
fn abbreviates(name: &str, known: &str) -> bool {
    let mut words = known.split('_');
    name.split('_').all(|short| {
        short.len() >= MIN_WORD && words.next().is_some_and(|word| word.starts_with(short))
    })
}

/// Edit distance: the number of letters to insert, delete, replace, or swap with the next one.
fn distance(left: &str, right: &str) -> usize {
    let left = left.as_bytes();
    let right = right.as_bytes();
    // Row i, column j: the distance between the first i letters of `left` and the first j letters
    // of `right`.
    let mut rows = vec![vec![0; right.len() + 1]; left.len() + 1];
    for i in 0..=left.len() {
        for j in 0..=right.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i.max(j)
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
                let swapped =
                    i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
                let swapped = if swapped {
                    rows[i - 2][j - 2] + 1
                } else {
                    usize::MAX
                };
                replaced
                    .min(swapped)
                    .min(rows[i - 1][j] + 1)
                    .min(rows[i][j - 1] + 1)
            };
        }
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_and_abbreviated_names_are_recognised() {
        for (name, meant) in [
            ("REDIS_ULR", "REDIS_URL"),
            ("REDIS_URI", "REDIS_URL"),
            ("RUNTIME_SUBDIR", "RUNTIME_SUBDIRECTORY"),
            ("RUNTIME_APPDIR", "RUNTIME_APPDIRECTORY"),
            ("RUNTIME_IGNORE_DOTFILES", "RUNTIME_IGNOREDOTFILES"),
            ("REDIS_POOL", "REDIS_POOL_SIZE"),
            ("LOGLEVEL_", "LOG_LEVEL"),
            ("USE_STATD", "USE_STATSD"),
        ] {
            assert_eq!(near_miss(name), Some(meant), "{name}");
        }
    }

    #[test]
    fn names_of_other_programs_are_left_alone() {
        // What a shell, a container and Kubernetes set beside us.
        for name in [
            "HOME",
            "PATH",
            "HOSTNAME",
            "LANG",
            "LC_ALL",
            "SHLVL",
            "PWD",
            "TERM",
            "LS_COLORS",
            "NO_PROXY",
            "http_proxy",
            "SSL_CERT_FILE",
            "REDIS_PORT",
            "REDIS_SERVICE_HOST",
            "REDIS_SERVICE_PORT",
            "REDIS_PORT_6379_TCP",
            "REDIS_PORT_6379_TCP_ADDR",
            "REDIS_PORT_6379_TCP_PROTO",
            "KUBERNETES_SERVICE_HOST",
            "KUBERNETES_PORT",
            "POD_NAME",
            "NODE_NAME",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "RUST_LOG",
            "RUST_BACKTRACE",
            "CARGO_HOME",
            "XDG_RUNTIME_DIR",
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "REDIS_URL",
            "HTTP_PORT",
            "DOG_STATSD_MOGRIFIER_A_PATTERN",
        ] {
            assert_eq!(near_miss(name), None, "{name}");
        }
    }
}
