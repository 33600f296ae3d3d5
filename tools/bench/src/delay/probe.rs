//! The cost of the proxy itself: round trips of one byte to an echo, directly and through it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::DelayProxy;
use crate::figures::{Table, micros, percentile};

const ROUND_TRIPS: usize = 400;

/// Measures round trips over loopback for a second: directly, through the proxy without delay, and
/// with 1 ms each way.
pub(crate) fn proxy_accuracy() -> Result<Table> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
    let server = listener.local_addr()?;
    let proxy = DelayProxy::start(&[server], Duration::ZERO)?;
    let through = proxy.addresses[0];
    let mut table = Table::new("proxy", &["round trip of one byte"]);
    let mut measure = |name: &str, address| {
        let mut trips = round_trips(&listener, address)?;
        let mut row = table.row(&[&name]);
        row.add("p50 us", 0, percentile(&mut trips, 0.5));
        row.add("p99 us", 0, percentile(&mut trips, 0.99));
        anyhow::Ok(())
    };
    measure("direct", server)?;
    measure("through the proxy, no delay", through)?;
    proxy.set_delay(Duration::from_millis(1));
    measure("through the proxy, 1 ms each way", through)?;
    Ok(table)
}

/// Microseconds of each round trip.
fn round_trips(listener: &TcpListener, address: SocketAddr) -> Result<Vec<f64>> {
    let mut client = TcpStream::connect(address)?;
    client.set_nodelay(true)?;
    let (mut server, _) = listener.accept()?;
    server.set_nodelay(true)?;
    let echo = std::thread::spawn(move || {
        let mut byte = [0];
        while server
            .read_exact(&mut byte)
            .and_then(|()| server.write_all(&byte))
            .is_ok()
        {}
    });
    let mut trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        client.write_all(b"x")?;
        client.read_exact(&mut [0])?;
        trips.push(micros(start.elapsed()));
    }
    drop(client);
    echo.join().expect("the echo does not panic");
    Ok(trips)
}
