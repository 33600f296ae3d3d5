//! Resolves the servers of a service over DNS, as /etc/resolv.conf says.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tidegate_pipeline::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::message::{self, DnsAnswer};
use crate::settings::Srv;

const RESOLV_CONF_PATH: &str = "/etc/resolv.conf";
/// Maximum of bytes of a UDP answer to a query without EDNS.
const UDP_BYTES: usize = 512;
/// Maximum of servers that are queried, and of search domains, as in the C library.
const MAX_LIST_ENTRIES: usize = 6;

/// The DNS servers and options of a look-up.
#[derive(Debug, PartialEq)]
pub(super) struct Resolver {
    servers: Vec<SocketAddr>,
    /// Domains that are appended to a short name.
    search: Vec<String>,
    /// A name with at least this number of dots is first tried as it is.
    min_dots: usize,
    timeout: Duration,
    attempts: usize,
}

impl Resolver {
    /// Reads the settings, and /etc/resolv.conf for the rest.
    pub(super) fn from_settings(srv: &Srv) -> Self {
        let text = std::fs::read_to_string(RESOLV_CONF_PATH).unwrap_or_default();
        let mut resolver = Self::parse(&text);
        if !srv.resolvers.is_empty() {
            resolver.servers.clone_from(&srv.resolvers);
        }
        resolver
    }

    /// Parses /etc/resolv.conf. Missing options have the defaults of the C library.
    fn parse(text: &str) -> Self {
        let mut resolver = Self {
            servers: Vec::new(),
            search: Vec::new(),
            min_dots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    let server = address.map(|address| SocketAddr::new(address, 53));
                    resolver.servers.extend(server);
                }
                Some("search" | "domain") => {
                    resolver.search = words.take(MAX_LIST_ENTRIES).map(str::to_owned).collect()
                }
                Some("options") => words.for_each(|word| resolver.option(word)),
                _ => {}
            }
        }
        resolver.servers.truncate(MAX_LIST_ENTRIES);
        if resolver.servers.is_empty() {
            resolver.servers.push((Ipv4Addr::LOCALHOST, 53).into());
        }
        resolver
    }

    fn option(&mut self, word: &str) {
        let Some((name, number)) = word.split_once(':') else {
            return;
        };
        let Ok(number) = number.parse::<usize>() else {
            return;
        };
        match name {
            "ndots" => self.min_dots = number.min(15),
            "timeout" => self.timeout = Duration::from_secs(number.clamp(1, 30) as u64),
            "attempts" => self.attempts = number.clamp(1, 5),
            _ => {}
        }
    }

    /// Returns the servers of a service, sorted like the reference, so that both find a key on the
    /// same server.
    ///
    /// # Errors
    /// A text with the reason why no server was found.
    pub(super) async fn servers(&self, name: &str) -> Result<Vec<Address>, String> {
        let mut reason = "it is no name".to_owned();
        for name in self.candidates(name) {
            match self.query(&name).await {
                Ok(DnsAnswer::Records(found)) if !found.is_empty() => {
                    return Ok(sorted_addresses(found));
                }
                Ok(DnsAnswer::Records(_)) => reason = format!("{name} has no SRV records"),
                Ok(_) => reason = format!("there is no {name}"),
                Err(failed) => reason = failed,
            }
        }
        Err(reason)
    }

    /// Returns the names to try, in their order.
    fn candidates(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.to_owned()];
        }
        let itself = format!("{name}.");
        let mut names: Vec<String> = self
            .search
            .iter()
            .map(|domain| format!("{name}.{}.", domain.trim_matches('.')))
            .collect();
        let first = if name.matches('.').count() >= self.min_dots {
            0
        } else {
            names.len()
        };
        names.insert(first, itself);
        names
    }

    /// Queries one server after the other, until one answers.
    async fn query(&self, name: &str) -> Result<DnsAnswer, String> {
        let Some(question) = message::question(fastrand::u16(..), name) else {
            return Err(format!("{name} is no name"));
        };
        let mut reason = String::new();
        for server in self
            .servers
            .iter()
            .cycle()
            .take(self.servers.len() * self.attempts)
        {
            match timeout(self.timeout, exchange(*server, &question)).await {
                Ok(Ok(DnsAnswer::Failed(code))) => {
                    reason = format!("{server} answers with error {code}")
                }
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => reason = format!("{server}: {error}"),
                Err(_) => {
                    reason = format!(
                        "{server} does not answer within {} s",
                        self.timeout.as_secs()
                    )
                }
            }
        }
        Err(format!("asking for {name}: {reason}"))
    }
}

/// Sorts by `host.:port`, as the reference does. The final dot is removed, so that names of
/// /etc/hosts are found too.
fn sorted_addresses(mut found: Vec<(String, u16)>) -> Vec<Address> {
    found.sort_by_cached_key(|(host, port)| format!("{host}:{port}"));
    let address = |(host, port): (String, u16)| Address::Tcp {
        host: host.trim_end_matches('.').to_owned(),
        port,
    };
    found.into_iter().map(address).collect()
}

/// Queries over UDP, and over TCP if the answer does not fit.
async fn exchange(server: SocketAddr, question: &[u8]) -> io::Result<DnsAnswer> {
    let any: IpAddr = if server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    // A connected socket receives only from this server.
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = [0; UDP_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        match message::answer(question, &buffer[..length]) {
            Some(DnsAnswer::Truncated) => return exchange_over_tcp(server, question).await,
            Some(answer) => return Ok(answer),
            // A late answer, or a forged one.
            None => {}
        }
    }
}

async fn exchange_over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<DnsAnswer> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes(), question].concat())
        .await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    match message::answer(question, &answer) {
        Some(DnsAnswer::Truncated) | None => {
            Err(io::Error::other("the answer over TCP makes no sense"))
        }
        Some(answer) => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_the_system_is_read() {
        let text = "# made by kubernetes\nsearch shop.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\n\
                    nameserver ::1\nnameserver fe80::1%eth0\noptions ndots:5 timeout:2 attempts:3 edns0\n";
        let read = Resolver::parse(text);
        let servers = ["10.96.0.10:53", "[::1]:53"].map(|server| server.parse().unwrap());
        assert_eq!(
            (&read.servers[..], read.min_dots, read.attempts),
            (&servers[..], 5, 3)
        );
        assert_eq!(read.timeout, Duration::from_secs(2));
        assert_eq!(
            Resolver::parse("").servers,
            ["127.0.0.1:53".parse().unwrap()]
        );
    }

    #[test]
    fn short_names_are_tried_in_the_domains() {
        let check = |dots, name: &str, expected: &[&str]| {
            let resolver = Resolver {
                search: vec!["a.local".into(), "b.".into()],
                min_dots: dots,
                ..Resolver::parse("")
            };
            assert_eq!(resolver.candidates(name), expected, "{name}");
        };
        check(
            5,
            "_m._tcp.x",
            &["_m._tcp.x.a.local.", "_m._tcp.x.b.", "_m._tcp.x."],
        );
        check(
            1,
            "_m._tcp.x",
            &["_m._tcp.x.", "_m._tcp.x.a.local.", "_m._tcp.x.b."],
        );
        check(5, "_m._tcp.x.", &["_m._tcp.x."]);
    }

    /// With the dot at the end of each host, which DNS puts there. Without it, `a.b:1` would be before `a:1`.
    #[test]
    fn servers_are_in_the_order_of_the_reference() {
        let found = [
            ("z.", 1),
            ("z.", 0),
            ("a.", 9001),
            ("a.b.", 1),
            ("a.", 11_211),
        ];
        let sorted = sorted_addresses(found.map(|(host, port)| (host.to_owned(), port)).to_vec());
        let shown: Vec<String> = sorted.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a:11211", "a:9001", "a.b:1", "z:0", "z:1"]);
    }
}
