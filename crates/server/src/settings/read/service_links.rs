//! Service links: variables that Kubernetes sets in each pod for a Service. Those of a Service
//! named tidegate or tidegate-redis look like settings.

use std::collections::BTreeSet;

/// Whether a variable is a link to a Service whose name begins with `tidegate`.
pub(super) fn is_service_link(name: &str, value: &str) -> bool {
    let Some(rest) = name
        .strip_prefix("TIDEGATE")
        .filter(|rest| rest.starts_with('_'))
    else {
        return false;
    };
    if rest.ends_with("_SERVICE_HOST")
        || rest.ends_with("_SERVICE_PORT")
        || rest.contains("_SERVICE_PORT_")
    {
        return true;
    }
    let Some((_, port)) = rest.rsplit_once("_PORT") else {
        return false;
    };
    // `_PORT` and `_PORT_8081_TCP` are addresses; `_PORT_8081_TCP_PORT` is split at its last part.
    let is_address = || {
        ["tcp://", "udp://", "sctp://"]
            .iter()
            .any(|scheme| value.starts_with(scheme))
    };
    match port {
        "" => is_address() || rest.strip_suffix("_PORT").is_some_and(is_numbered),
        _ => port.strip_prefix('_').is_some_and(is_part),
    }
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

/// Whether a text ends in the form of `_PORT_8081_TCP`.
fn is_numbered(text: &str) -> bool {
    text.rsplit_once("_PORT_")
        .is_some_and(|(_, port)| is_part(port))
}

/// Whether a text has the form of `8081_TCP` or `8081_TCP_PROTO`.
fn is_part(text: &str) -> bool {
    let mut parts = text.split('_');
    let number = parts.next().is_some_and(|part| part.parse::<u16>().is_ok());
    let protocol = parts
        .next()
        .is_some_and(|part| ["TCP", "UDP", "SCTP"].contains(&part));
    let rest = parts
        .next()
        .is_none_or(|part| ["PROTO", "PORT", "ADDR"].contains(&part));
    number && protocol && rest && parts.next().is_none()
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
