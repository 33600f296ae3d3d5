//! `tidegate health`: checks the health of the server with the same settings, for the health check
//! of a container.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_cli::{CommandResult, Exit, Failure, print};

use crate::settings::{Endpoint, Settings};

/// Timeout of the connection attempt, and of each read and write. A healthy server answers within
/// milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Size limit of the answer in bytes. Real answers have a few lines.
const MAX_ANSWER_BYTES: u64 = 16 * 1024;

/// Requests `/healthcheck` at HOST and PORT.
pub(super) fn health() -> CommandResult {
    let settings =
        Settings::from_environment().map_err(|problems| Failure::usage(problems.to_string()))?;
    let address = local_address(&settings.http);
    let answer = request_health(address).map_err(|error| {
        Failure::unavailable(format!(
            "no server answers at http://{address}/healthcheck: {error}"
        ))
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") if body.starts_with("OK") => {
            print(&format!("{}\n", body.trim_end())).map(|()| Exit::Done)
        }
        Some("500") => print(body).map(|()| Exit::Failed),
        _ => Err(Failure::unavailable(format!(
            "what answers at http://{address}/healthcheck is no Tidegate server"
        ))),
    }
}

/// The address at which this machine reaches a server that listens at `endpoint`.
fn local_address(endpoint: &Endpoint) -> SocketAddr {
    let host = match endpoint.host {
        IpAddr::V4(host) if host.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        // A port of all addresses accepts connections of both IP versions, and a container may have
        // no IPv6 address.
        IpAddr::V6(host) if host.is_unspecified() => loopback(),
        host => host,
    };
    SocketAddr::new(host, endpoint.port)
}

/// The loopback address of an IP version that this machine supports.
fn loopback() -> IpAddr {
    let has_version_4 = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).is_ok();
    if has_version_4 {
        Ipv4Addr::LOCALHOST.into()
    } else {
        Ipv6Addr::LOCALHOST.into()
    }
}

fn request_health(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    write!(
        stream,
        "GET /healthcheck HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
