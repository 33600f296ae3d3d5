//! Address map: for servers whose announced addresses are not reachable, the addresses to dial.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

use tidegate_pipeline::{Address, AddressMap};

/// A host, with an optional port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct HostPort {
    host: String,
    port: Option<u16>,
}

/// Parses pairs of an announced address and the address to dial. None if there are no pairs.
///
/// # Errors
/// The first invalid pair, with the reason.
pub(super) fn address_map(pairs: &[String]) -> Result<Option<AddressMap>, String> {
    let mut addresses = HashMap::new();
    for pair in pairs {
        let expected = || format!("{pair}: {EXPECTED}");
        let (announced, dialled) = pair.split_once('=').ok_or_else(expected)?;
        let read = |text: &str| parse_host_port(text.trim()).ok_or_else(expected);
        let announced = read(announced)?;
        let dialled = read(dialled)?;
        if announced.port.is_none() && dialled.port.is_some() {
            return Err(format!(
                "{pair}: all ports of that host would become one; name a port on both sides, or on none"
            ));
        }
        if addresses.insert(announced, dialled).is_some() {
            return Err(format!("{pair}: this address has another pair already"));
        }
    }
    let addresses = Arc::new(addresses);
    Ok((!addresses.is_empty())
        .then(|| AddressMap::new(move |address| dialled(&addresses, address))))
}

const EXPECTED: &str = "expected announced=dialled, each host:port or a host alone";

/// Returns the address to dial. A pair with a port takes precedence over one without.
fn dialled(addresses: &HashMap<HostPort, HostPort>, address: Address) -> Address {
    let Address::Tcp { host, port } = &address else {
        return address;
    };
    let found = [Some(*port), None].into_iter().find_map(|port| {
        addresses.get(&HostPort {
            host: host.clone(),
            port,
        })
    });
    match found {
        Some(place) => Address::Tcp {
            host: place.host.clone(),
            port: place.port.unwrap_or(*port),
        },
        None => address,
    }
}

/// Parses `host:port`, or a host. An IPv6 address is in brackets, or alone.
fn parse_host_port(text: &str) -> Option<HostPort> {
    if let Ok(Address::Tcp { host, port }) = text.parse() {
        return Some(HostPort {
            host,
            port: Some(port),
        });
    }
    let host = text
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(text);
    let is_host = !host.is_empty()
        && !host.contains('/')
        && (!host.contains(':') || host.parse::<Ipv6Addr>().is_ok());
    is_host.then(|| HostPort {
        host: host.to_owned(),
        port: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &str, expected: &[(&str, &str)]) {
        let mut addresses = HashMap::new();
        for pair in pairs.split(',') {
            let (announced, dialled) = pair.split_once('=').unwrap();
            addresses.insert(
                parse_host_port(announced).unwrap(),
                parse_host_port(dialled).unwrap(),
            );
        }
        for (announced, reached) in expected {
            assert_eq!(
                dialled(&addresses, announced.parse().unwrap()).to_string(),
                *reached,
                "{pairs}"
            );
        }
    }

    #[test]
    fn an_announced_address_is_dialled_elsewhere() {
        check(
            "10.0.0.1=redis-0.example",
            &[
                ("10.0.0.1:6379", "redis-0.example:6379"),
                ("10.0.0.2:1", "10.0.0.2:1"),
            ],
        );
        let pairs = "10.0.0.1:7000=localhost:17000,10.0.0.1=localhost";
        check(
            pairs,
            &[
                ("10.0.0.1:7000", "localhost:17000"),
                ("10.0.0.1:7001", "localhost:7001"),
            ],
        );
        check(
            "fd00::1=a,[fd00::2]:1=[::1]:2",
            &[("[fd00::1]:5", "a:5"), ("[fd00::2]:1", "[::1]:2")],
        );
    }

    #[test]
    fn pairs_that_cannot_be_used_are_told() {
        for (pairs, expected) in [
            (&["a"][..], "a: expected announced=dialled"),
            (&["a=b", "=c"], "=c: expected announced=dialled"),
            (&["a=b:x"], "a=b:x: expected announced=dialled"),
            (&["a=/run/redis.sock"], "expected announced=dialled"),
            (&["a=b:1"], "all ports of that host would become one"),
            (
                &["a:1=b", "a:1=c"],
                "a:1=c: this address has another pair already",
            ),
        ] {
            let pairs: Vec<String> = pairs.iter().map(|&pair| pair.to_owned()).collect();
            let error = address_map(&pairs).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(address_map(&[]).unwrap().is_none());
    }
}
