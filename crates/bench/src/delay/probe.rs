//! What the proxy itself costs: round trips of one byte to an echo, directly and through it.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::DelayProxy;
use crate::figures::micros;

const TRIPS: usize = 400;

/// Round trips over loopback: directly, through the proxy without delay, and with 1 ms each way.
#[derive(Clone, Copy)]
pub(crate) struct Accuracy {
    direct: Trip,
    none: Trip,
    one: Trip,
}

/// Median and 99th percentile.
#[derive(Clone, Copy)]
struct Trip {
    p50: Duration,
    p99: Duration,
}

impl Accuracy {
    /// Takes a second.
    pub(crate) fn measure() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let server = listener.local_addr()?;
        let proxy = DelayProxy::start(&[server], Duration::ZERO)?;
        let direct = Trip::measure(&listener, server)?;
        let none = Trip::measure(&listener, proxy.addresses()[0])?;
        proxy.set_delay(Duration::from_millis(1));
        let one = Trip::measure(&listener, proxy.addresses()[0])?;
        Ok(Self { direct, none, one })
    }

    pub(crate) fn to_json(self) -> Value {
        let trip = |trip: Trip| json!({ "p50_us": micros(trip.p50), "p99_us": micros(trip.p99) });
        json!({ "direct": trip(self.direct), "no_delay": trip(self.none), "one_ms_each_way": trip(self.one) })
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Round trip of one byte, p50 and p99: {} directly, ", self.direct)?;
        write!(f, "{} through the proxy at D = 0, {} at D = 1 ms each way.", self.none, self.one)
    }
}

impl Trip {
    fn measure(listener: &TcpListener, address: SocketAddr) -> anyhow::Result<Self> {
        let mut client = TcpStream::connect(address)?;
        client.set_nodelay(true)?;
        let (mut server, _) = listener.accept()?;
        server.set_nodelay(true)?;
        let echo = std::thread::spawn(move || {
            let mut byte = [0];
            while server.read_exact(&mut byte).and_then(|()| server.write_all(&byte)).is_ok() {}
        });
        let mut trips = Vec::with_capacity(TRIPS);
        for _ in 0..TRIPS {
            let start = Instant::now();
            client.write_all(b"x")?;
            client.read_exact(&mut [0])?;
            trips.push(start.elapsed());
        }
        drop(client);
        echo.join().expect("the echo does not panic");
        trips.sort_unstable();
        Ok(Self { p50: trips[TRIPS / 2], p99: trips[TRIPS * 99 / 100] })
    }
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/{:.0} us", micros(self.p50), micros(self.p99))
    }
}
