//! Service links: variables that Kubernetes sets in each pod for a Service. Those of a Service
//! named tidegate or tidegate-redis look like settings.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex_lite::Regex;

/// Names that no setting can have: `.._SERVICE_HOST`, `.._SERVICE_PORT`, `.._SERVICE_PORT_name`,
/// `.._PORT_8081_TCP` and its parts.
static LINK: LazyLock<Regex> = LazyLock::new(|| {
    let ends =
        r"_SERVICE_(HOST|PORT)$|_SERVICE_PORT_|_PORT_\d{1,5}_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$";
    Regex::new(&format!("^TIDEGATE(_.*)?({ends})")).expect("the pattern is right")
});

/// Whether a variable is a link to a Service whose name begins with `tidegate`.
pub(super) fn is_service_link(name: &str, value: &str) -> bool {
    // A setting may end with `_PORT`, and its value is no address.
    let is_address = || {
        ["tcp://", "udp://", "sctp://"]
            .iter()
            .any(|scheme| value.starts_with(scheme))
    };
    LINK.is_match(name) || name.starts_with("TIDEGATE_") && name.ends_with("_PORT") && is_address()
}

/// Names of the Services of such variables.
pub(super) fn services(links: &[&str]) -> String {
    let service = |link: &&str| {
        let end = ["_SERVICE_", "_PORT"]
            .iter()
            .filter_map(|word| link.find(word))
            .min();
        link[..end.unwrap_or(link.len())]
            .to_lowercase()
            .replace('_', "-")
    };
    let names: BTreeSet<String> = links.iter().map(service).collect();
    names.into_iter().collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_sets_is_told_from_what_is_misspelt() {
        for (name, value) in [
            ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
            ("TIDEGATE_SERVICE_PORT", "8081"),
            ("TIDEGATE_SERVICE_PORT_GRPC", "8081"),
            ("TIDEGATE_PORT", "tcp://10.0.0.1:8081"),
            ("TIDEGATE_PORT_8081_TCP", "tcp://10.0.0.1:8081"),
            ("TIDEGATE_PORT_8081_TCP_PROTO", "tcp"),
            ("TIDEGATE_PORT_8081_TCP_PORT", "8081"),
            ("TIDEGATE_PORT_8081_TCP_ADDR", "10.0.0.1"),
            ("TIDEGATE_REDIS_MASTER_SERVICE_HOST", "10.0.0.2"),
            ("TIDEGATE_REDIS_MASTER_PORT_6379_TCP_ADDR", "10.0.0.2"),
        ] {
            assert!(is_service_link(name, value), "{name}");
        }
        for (name, value) in [
            ("TIDEGATE_PORT", "8081"),
            ("TIDEGATE_PORTS", "tcp://10.0.0.1:8081"),
            ("TIDEGATE_PORT_GRPC", "8081"),
            ("TIDEGATE_PORT_8081_TCP_NAME", "x"),
            ("TIDEGATE_SERVICE", "x"),
            ("TIDEGATE_CORE", "2"),
            ("TIDEGATEX_SERVICE_HOST", "10.0.0.1"),
            ("SERVICE_HOST", "10.0.0.1"),
        ] {
            assert!(!is_service_link(name, value), "{name}");
        }
    }
}
