//! What the proxy itself costs: round trips of one byte to an echo, directly and through it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::DelayProxy;
use crate::figures::{Sheet, micros};

const TRIPS: usize = 400;

/// Round trips over loopback: directly, through the proxy without delay, and with 1 ms each way.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Accuracy {
    direct: Trip,
    no_delay: Trip,
    one_ms_each_way: Trip,
}

/// Median and 99th percentile, in microseconds.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Trip {
    p50_us: f64,
    p99_us: f64,
}

impl Accuracy {
    /// Takes a second.
    pub(crate) fn measure() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let server = listener.local_addr()?;
        let proxy = DelayProxy::start(&[server], Duration::ZERO)?;
        let direct = Trip::measure(&listener, server)?;
        let no_delay = Trip::measure(&listener, proxy.addresses()[0])?;
        proxy.set_delay(Duration::from_millis(1));
        let one_ms_each_way = Trip::measure(&listener, proxy.addresses()[0])?;
        Ok(Self {
            direct,
            no_delay,
            one_ms_each_way,
        })
    }

    pub(crate) fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new(&["round trip of one byte", "p50 us", "p99 us"]);
        let rows = [
            ("direct", self.direct),
            ("through the proxy, no delay", self.no_delay),
            ("through the proxy, 1 ms each way", self.one_ms_each_way),
        ];
        for (name, trip) in rows {
            sheet.row(vec![
                name.to_owned(),
                format!("{:.0}", trip.p50_us),
                format!("{:.0}", trip.p99_us),
            ]);
        }
        sheet
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
            while server
                .read_exact(&mut byte)
                .and_then(|()| server.write_all(&byte))
                .is_ok()
            {}
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
        Ok(Self {
            p50_us: micros(trips[TRIPS / 2]),
            p99_us: micros(trips[TRIPS * 99 / 100]),
        })
    }
}
