//! Whom both requests and jobs call, and who counts them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::super::moments::now;
use super::ledger::Unit;

/// A call says from when on its unit may have been taken, and a job until when. A request takes its unit before it arrives.
pub(super) const EARLIEST: &str = "x-earliest";
pub(super) const LATEST: &str = "x-latest";

/// Who called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    Request,
    Job,
}

/// The units of calls by rule and tenant.
pub(super) type Calls = BTreeMap<(String, String), Vec<(Caller, Unit)>>;

/// A server for whoever connects.
pub(super) struct Vendor {
    pub(super) address: SocketAddr,
    calls: Arc<Mutex<Calls>>,
}

impl Vendor {
    pub(super) fn start(rules: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, calls) = (
            listener.local_addr().unwrap(),
            Arc::<Mutex<Calls>>::default(),
        );
        let counted = Arc::clone(&calls);
        // It ends with the test, and each connection with who made it.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, calls) = (stream.unwrap(), Arc::clone(&counted));
                std::thread::spawn(move || {
                    while serve(&mut BufReader::new(&stream), rules, &calls).is_some() {}
                });
            }
        });
        Self { address, calls }
    }

    pub(super) fn calls(&self) -> Calls {
        self.calls.lock().unwrap().clone()
    }
}

/// Answers one call. None: there is none any more.
fn serve(stream: &mut BufReader<&TcpStream>, rules: &[&str], calls: &Mutex<Calls>) -> Option<()> {
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => _ = headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    let moment = |name: &str| {
        headers
            .get(name)
            .map(|moment| moment.parse::<u64>().unwrap())
    };
    if let Some(earliest) = moment(EARLIEST) {
        let latest = moment(LATEST);
        let caller = if latest.is_some() {
            Caller::Job
        } else {
            Caller::Request
        };
        let unit = Unit {
            earliest,
            latest: latest.unwrap_or_else(now),
        };
        let mut calls = calls.lock().unwrap();
        for rule in rules {
            if let Some(tenant) = headers.get(&format!("x-{rule}")) {
                calls
                    .entry(((*rule).to_owned(), tenant.clone()))
                    .or_default()
                    .push((caller, unit));
            }
        }
    }
    stream
        .get_mut()
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .ok()
}
