//! Parses the owners of slots from replies to CLUSTER SLOTS and from redirects.

use std::ops::RangeInclusive;

use crate::config::Address;
use crate::wire::{Reply, Slot};

/// Ranges of slots and the address of their primary, as a server names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) ranges: Vec<(RangeInclusive<u16>, Address)>,
    /// Epoch of the cluster that the server knows, which grows with each failover. `None` if the
    /// server did not name it.
    pub(crate) cluster_epoch: Option<u64>,
}

impl View {
    /// Reads the reply to CLUSTER SLOTS. Primaries whose address is unknown are left out.
    ///
    /// `responder` is the server that answered: its host replaces an empty host in the reply.
    pub(crate) fn read(reply: &Reply, responder: &Address) -> Option<Self> {
        let Reply::Array(rows) = reply else {
            return None;
        };
        let mut ranges = Vec::with_capacity(rows.len());
        for row in rows {
            let Ok(Reply::Array(fields)) = row else {
                return None;
            };
            let [
                Ok(Reply::Integer(first)),
                Ok(Reply::Integer(last)),
                Ok(Reply::Array(primary)),
                ..,
            ] = &fields[..]
            else {
                return None;
            };
            let first = Slot::new(u16::try_from(*first).ok()?)?;
            let last = Slot::new(u16::try_from(*last).ok()?)?;
            let [Ok(host), Ok(Reply::Integer(port)), ..] = &primary[..] else {
                return None;
            };
            let host = match host {
                Reply::Bulk(host) | Reply::Simple(host) => std::str::from_utf8(host).ok()?,
                Reply::Null => "",
                _ => return None,
            };
            if let Some(address) = address(host, u16::try_from(*port).ok()?, responder) {
                ranges.push((first.number()..=last.number(), address));
            }
        }
        ranges.sort_by_key(|(slots, _)| *slots.start());
        Some(Self {
            ranges,
            cluster_epoch: None,
        })
    }

    /// Returns the number of slots that have an owner.
    pub(crate) fn covered(&self) -> usize {
        self.ranges.iter().map(|(slots, _)| slots.len()).sum()
    }
}

/// Reads the epoch of the cluster from the reply to CLUSTER INFO.
pub(crate) fn current_epoch(info: &Reply) -> Option<u64> {
    let Reply::Bulk(text) = info else { return None };
    let mut lines = std::str::from_utf8(text).ok()?.lines();
    lines
        .find_map(|line| line.strip_prefix("cluster_current_epoch:"))?
        .trim()
        .parse()
        .ok()
}

/// Reads the `host:port` of a redirect. An IPv6 address may have no brackets.
pub(crate) fn endpoint(text: &str, responder: &Address) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    address(host, port.parse().ok()?, responder)
}

fn address(host: &str, port: u16, responder: &Address) -> Option<Address> {
    let host = match (host, responder) {
        ("?", _) => return None,
        ("", Address::Tcp { host, .. }) => host,
        ("", Address::Unix(_)) => return None,
        (host, _) => host,
    };
    (port != 0).then(|| Address::Tcp {
        host: host.to_owned(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ServerError;

    fn bulk(text: &str) -> Result<Reply, ServerError> {
        Ok(Reply::Bulk(text.to_owned().into()))
    }

    fn row(first: i64, last: i64, host: Reply, port: i64) -> Result<Reply, ServerError> {
        let primary = Ok(Reply::Array(vec![
            Ok(host),
            Ok(Reply::Integer(port)),
            bulk("id"),
            Ok(Reply::Array(vec![])),
        ]));
        let replica = Ok(Reply::Array(vec![
            bulk("10.0.0.9"),
            Ok(Reply::Integer(9)),
            bulk("id"),
        ]));
        Ok(Reply::Array(vec![
            Ok(Reply::Integer(first)),
            Ok(Reply::Integer(last)),
            primary,
            replica,
        ]))
    }

    fn responder_address() -> Address {
        "10.0.0.1:7000".parse().unwrap()
    }

    #[test]
    fn a_view_is_read_from_cluster_slots() {
        let host = |text: &str| Reply::Bulk(text.to_owned().into());
        let reply = Reply::Array(vec![
            row(5461, 10922, host("10.0.0.2"), 7001),
            row(0, 5460, host(""), 7000),
            row(10923, 16382, Reply::Null, 7002),
            row(16383, 16383, host("?"), 7003),
        ]);
        let view = View::read(&reply, &responder_address()).unwrap();
        let expected = [
            (0..=5460, "10.0.0.1:7000"),
            (5461..=10922, "10.0.0.2:7001"),
            (10923..=16382, "10.0.0.1:7002"),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(slots, text)| (slots, text.parse().unwrap()))
            .collect();
        assert_eq!(view.ranges, expected);
        assert_eq!(view.covered(), 16383);
    }

    #[test]
    fn a_malformed_view_is_refused() {
        let host = Reply::Bulk("h".into());
        for reply in [
            Reply::Null,
            Reply::Array(vec![Ok(Reply::Integer(1))]),
            Reply::Array(vec![Ok(Reply::Array(vec![
                Ok(Reply::Integer(0)),
                Ok(Reply::Integer(1)),
            ]))]),
            Reply::Array(vec![row(0, 16384, host.clone(), 1)]),
            Reply::Array(vec![row(-1, 5, host.clone(), 1)]),
            Reply::Array(vec![row(0, 5, host, 70_000)]),
        ] {
            assert_eq!(View::read(&reply, &responder_address()), None, "{reply:?}");
        }
    }

    #[test]
    fn the_epoch_stands_in_cluster_info() {
        let check = |text: &str, expected| {
            assert_eq!(
                current_epoch(&Reply::Bulk(text.to_owned().into())),
                expected
            )
        };
        check(
            "cluster_state:ok\r\ncluster_current_epoch:12\r\ncluster_my_epoch:3\r\n",
            Some(12),
        );
        check("cluster_state:ok\r\n", None);
        check("cluster_current_epoch:x\r\n", None);
        assert_eq!(current_epoch(&Reply::Array(Vec::new())), None);
    }

    #[test]
    fn redirects_name_an_endpoint() {
        let check = |text: &str, expected: Option<&str>| {
            let expected = expected.map(|text| text.parse::<Address>().unwrap());
            assert_eq!(endpoint(text, &responder_address()), expected, "{text}");
        };
        check("10.0.0.7:6379", Some("10.0.0.7:6379"));
        check("redis-0.local:6379", Some("redis-0.local:6379"));
        check("2001:db8::1:6379", Some("[2001:db8::1]:6379"));
        check("[::1]:6379", Some("[::1]:6379"));
        check(":6379", Some("10.0.0.1:6379"));
        check("?:6379", None);
        check("10.0.0.7", None);
        check("10.0.0.7:0", None);
        check("10.0.0.7:x", None);
    }
}
