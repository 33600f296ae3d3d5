//! Connects to one of the addresses of a name.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Time after which all addresses are tried, whatever their number. For two addresses it is the
/// delay that RFC 8305 recommends, and half of the shortest connect timeout, which is memcached's.
const ALL_TRIED_AFTER: Duration = Duration::from_millis(250);

/// Maximum number of addresses of one name that are tried. Each is a socket.
const MAX_ADDRESSES: usize = 32;

/// Resolves a host and connects to one of its addresses, as [`dial_any`] does.
///
/// Only the system bounds the time, so the caller sets a timeout.
///
/// # Errors
/// The name is unknown, or none of its addresses accepts.
///
/// # Cancellation
/// Dropping the future closes the sockets. A look-up that hangs keeps a thread of the runtime until
/// the system aborts it.
pub async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
    dial_any(&addresses).await
}

/// Connects to the first of these addresses that accepts. Earlier ones have a head start.
///
/// The next address is tried after a head start, or at once if one refuses. Within 250 ms all of
/// them are tried, at most 32, so that none uses up the time of the others.
///
/// # Errors
/// No address accepts. The error is of the last one that failed.
///
/// # Cancellation
/// Dropping the future closes what was opened.
pub async fn dial_any(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let addresses = &addresses[..addresses.len().min(MAX_ADDRESSES)];
    // Only several addresses need a task for each attempt.
    if let [address] = addresses {
        return TcpStream::connect(address).await;
    }
    let head_start = ALL_TRIED_AFTER / (addresses.len().max(2) - 1) as u32;
    let mut rest = addresses.iter().copied();
    let mut attempts = JoinSet::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        if let Some(address) = rest.next() {
            attempts.spawn(attempt(address));
        }
        tokio::select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => last = error,
                Some(Err(error)) => last = error.into(),
                None => return Err(last),
            },
            () = sleep(head_start), if rest.len() > 0 => {}
        }
    }
}

async fn attempt(address: SocketAddr) -> io::Result<TcpStream> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    TcpStream::connect(address).await.map_err(named)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// Timeout of a test: far less than the system waits for an address that does not answer.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// An address that answers no attempt to connect: the queue of its listener is full.
    struct BlackHole {
        address: SocketAddr,
        _sockets: [Socket; 3],
    }

    fn socket() -> Socket {
        Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()
    }

    fn black_hole() -> BlackHole {
        let listener = socket();
        listener
            .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
            .unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let [first, second] = [socket(), socket()].map(|client| {
            client.set_nonblocking(true).unwrap();
            let _ = client.connect(&address);
            client
        });
        BlackHole {
            address: address.as_socket().unwrap(),
            _sockets: [listener, first, second],
        }
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Returns an address where no server listens.
    async fn refusing() -> SocketAddr {
        listener().await.1
    }

    async fn check(before: &[SocketAddr]) {
        let (_listener, address) = listener().await;
        let addresses = [before, &[address]].concat();
        let stream = timeout(PATIENCE, dial_any(&addresses))
            .await
            .expect("an address takes all the time")
            .unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_others() {
        let hole = black_hole();
        let alone = timeout(Duration::from_millis(500), TcpStream::connect(hole.address)).await;
        assert!(
            alone.is_err(),
            "the address answers: the test shows nothing"
        );
        check(&[hole.address]).await;
        check(&[refusing().await, hole.address, refusing().await]).await;
        let holes = [(); 20].map(|()| black_hole());
        check(&holes.each_ref().map(|hole| hole.address)).await;
    }

    #[tokio::test]
    async fn addresses_that_refuse_are_passed_over_at_once() {
        check(&[]).await;
        check(&[refusing().await]).await;
        let all = [refusing().await, refusing().await];
        let error = timeout(PATIENCE, dial_any(&all))
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(
            error.to_string().starts_with(&all[1].to_string()),
            "{error}"
        );
        assert_eq!(
            dial_any(&[]).await.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[tokio::test]
    async fn a_name_is_looked_up() {
        let (_listener, address) = listener().await;
        let stream = dial("localhost", address.port()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), address);
    }
}
