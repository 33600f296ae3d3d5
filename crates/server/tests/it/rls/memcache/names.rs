//! A server of DNS with the records that a test gives it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What it answers.
#[derive(Debug, Clone)]
pub(super) enum Zone {
    /// These hosts and ports have the service.
    Servers(Vec<(String, u16)>),
    /// The same, but only over TCP.
    Large(Vec<(String, u16)>),
    NoSuchName,
    Failing,
}

/// A server of DNS on a free port, over UDP and TCP.
pub(super) struct Names {
    pub(super) address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    asked: Arc<AtomicUsize>,
}

impl Names {
    pub(super) fn start(zone: Zone) -> Self {
        // The same port for both; somebody else may have one of them.
        let (udp, tcp) = std::iter::repeat_with(|| {
            let tcp = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            (UdpSocket::bind(tcp.local_addr().unwrap()), tcp)
        })
        .find_map(|(udp, tcp)| Some((udp.ok()?, tcp)))
        .unwrap();
        let names = Self {
            address: udp.local_addr().unwrap(),
            zone: Arc::new(Mutex::new(zone)),
            asked: Arc::default(),
        };
        let (zone, asked) = (names.zone.clone(), names.asked.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, client)) = udp.recv_from(&mut buffer) {
                asked.fetch_add(1, SeqCst);
                // A forged answer first: it has another id.
                let mut answer = answer(&buffer[..length], &zone.lock().unwrap(), false);
                answer[0] ^= 1;
                let _ = udp.send_to(&answer, client);
                answer[0] ^= 1;
                let _ = udp.send_to(&answer, client);
            }
        });
        let zone = names.zone.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let mut stream = stream.unwrap();
                stream
                    .set_read_timeout(Some(Duration::from_secs(5)))
                    .unwrap();
                let mut length = [0; 2];
                if stream.read_exact(&mut length).is_err() {
                    continue;
                }
                let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut question).unwrap();
                let answer = answer(&question, &zone.lock().unwrap(), true);
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                stream.write_all(&[&length[..], &answer].concat()).unwrap();
            }
        });
        names
    }

    pub(super) fn set(&self, zone: Zone) {
        *self.zone.lock().unwrap() = zone;
    }

    /// How often it was asked.
    pub(super) fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

fn answer(question: &[u8], zone: &Zone, over_tcp: bool) -> Vec<u8> {
    let (flags, servers): ([u8; 2], &[(String, u16)]) = match zone {
        Zone::Servers(servers) => ([0x81, 0x80], servers),
        Zone::Large(servers) if over_tcp => ([0x81, 0x80], servers),
        Zone::Large(_) => ([0x83, 0x80], &[]),
        Zone::NoSuchName => ([0x81, 0x83], &[]),
        Zone::Failing => ([0x81, 0x82], &[]),
    };
    let mut answer = question.to_vec();
    answer[2..4].copy_from_slice(&flags);
    answer[6..8].copy_from_slice(&u16::try_from(servers.len()).unwrap().to_be_bytes());
    for (host, port) in servers {
        let target: Vec<u8> = host
            .split('.')
            .chain([""])
            .flat_map(|label| [&[u8::try_from(label.len()).unwrap()], label.as_bytes()].concat())
            .collect();
        let data = [&[0, 0, 0, 0][..], &port.to_be_bytes(), &target].concat();
        // The name that was asked for, SRV, Internet, a minute.
        answer.extend_from_slice(&[0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 60]);
        answer.extend_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
        answer.extend_from_slice(&data);
    }
    answer
}
