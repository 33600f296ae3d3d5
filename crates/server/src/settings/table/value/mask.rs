//! Masking of addresses, for people and logs.

/// Replacement for a part that may be secret.
const MASK: &str = "*****";
const SCHEMES: [&str; 8] = [
    "redis", "rediss", "http", "https", "grpc", "grpcs", "tcp", "unix",
];
/// Harmless segments in the paths of collectors. A number is also harmless: it is a Redis database.
const PATHS: [&str; 4] = ["v1", "traces", "otlp", "api"];

/// Masks each address in a list. Only parts that are known to be harmless are shown: scheme, host,
/// port, the number of a database, the path of a socket. Any other part may be a password in the
/// wrong place.
pub(crate) fn mask_urls(text: &str) -> String {
    // A password may contain a comma. If the part before an `@` has no scheme, the `@` may end a
    // password that began in an earlier part.
    let is_cut = |part: &str| {
        part.split_once('@')
            .is_some_and(|(before, _)| !before.contains("://"))
    };
    match text.rsplit_once('@') {
        Some((_, rest)) if text.split(',').any(is_cut) => format!("{MASK}@{}", mask_list(rest)),
        _ => mask_list(text),
    }
}

fn mask_list(text: &str) -> String {
    text.split(',').map(mask_url).collect::<Vec<_>>().join(",")
}

fn mask_url(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) if SCHEMES.contains(&scheme) => (format!("{scheme}://"), rest),
        Some(_) => return MASK.to_owned(),
        None => (String::new(), text),
    };
    if scheme.is_empty() && (rest.starts_with('/') || rest.starts_with("./")) || scheme == "unix://"
    {
        return if rest.chars().all(is_in_path) {
            text.to_owned()
        } else {
            format!("{scheme}{MASK}")
        };
    }
    let (user, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => (format!("{MASK}@"), rest),
        None => (String::new(), rest),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let host = if is_host(host) { host } else { MASK };
    format!("{scheme}{user}{host}{}", mask_path(path))
}

/// Masks the rest of an address: `text` is empty or begins with `/`, `?` or `#`.
fn mask_path(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let (path, query) = text.split_at(end);
    let is_known = |part: &str| {
        part.is_empty() || PATHS.contains(&part) || part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let path = if path.split('/').all(is_known) {
        path.to_owned()
    } else {
        format!("/{MASK}")
    };
    let query = query
        .get(..1)
        .map(|sign| format!("{sign}{MASK}"))
        .unwrap_or_default();
    format!("{path}{query}")
}

/// Whether a text has the form `host`, `host:port` or `[address]:port`.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.starts_with('[') || host.ends_with(']') => (host, port),
        _ => (text, ""),
    };
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_address = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_host = match inner {
        Some(address) => address.chars().all(is_address),
        None => host.chars().all(is_name),
    };
    is_host && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_in_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/-_.".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_addresses_are_shown() {
        for text in [
            "",
            "host:6379",
            "host",
            ":6379",
            "[::1]:6379",
            "redis://host:1/2",
            "redis://[::1]:1/",
            "mymaster,s-1.example.com:26379,s_2:26379",
            "/var/run/nutcracker/ratelimit.sock",
            "./redis.sock",
            "unix:///run/redis.sock",
            "http://collector:4318/v1/traces",
            "file",
        ] {
            assert_eq!(mask_urls(text), text);
        }
    }

    /// Passwords were printed when an address did not have the usual form.
    #[test]
    fn what_may_be_a_password_is_not_shown() {
        for (text, shown) in [
            ("redis://user:hunter2@host:1/2", "redis://*****@host:1/2"),
            ("redis://:hun@ter2@host:1", "redis://*****@host:1"),
            (
                "redis://u:hunter2@a:1,redis://u:hunter2@b:2",
                "redis://*****@a:1,redis://*****@b:2",
            ),
            ("redis://u:hun,ter2@a:1", "*****@a:1"),
            ("redis://u:1234,hunter2@a:1", "*****@a:1"),
            ("mymaster,:hunter2@s1:1,s2:1", "*****@s1:1,s2:1"),
            ("user:hunter2@host:1", "*****@host:1"),
            ("redis://host:1/?password=hunter2", "redis://host:1/?*****"),
            (
                "redis://host:1?password=hunter2&db=2",
                "redis://host:1?*****",
            ),
            ("host:6380?password=hunter2", "host:6380?*****"),
            (
                "host:6380,password=hunter2,ssl=True",
                "host:6380,*****,*****",
            ),
            ("redis://u:hunter2/@host:1", "redis://*****@host:1"),
            ("redis://u:hunter2/host:1", "redis://*****/*****"),
            ("redis://u:hunter2#@host:1", "redis://*****@host:1"),
            ("redis%3A%2F%2Fu:hunter2%40host:1", "*****"),
            ("redis://host:hunter2", "redis://*****"),
            ("host:1:hunter2", "*****"),
            ("host:1 hunter2", "*****"),
            ("redis://host:1/hunter2", "redis://host:1/*****"),
            ("redis://host:1/0#hunter2", "redis://host:1/0#*****"),
            ("hunter2://host:1", "*****"),
            ("https://host/hunter2/v1/traces", "https://host/*****"),
            ("/run/redis.sock?password=hunter2", "*****"),
            ("unix:///run/redis.sock?password=hunter2", "unix://*****"),
            ("[hunter2]:1", "*****"),
        ] {
            assert_eq!(mask_urls(text), shown);
        }
    }
}
