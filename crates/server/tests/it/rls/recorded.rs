//! What arrives at Redis is, byte for byte, what the reference sends: golden/reference has it as it was recorded.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use serde_json::Value;
use tidegate_pipeline::test_util::RedisServer;

use crate::support::{Limits, Server, post, repository};
use crate::workflows::redis;

/// What sets up connections and looks after them. Clients differ in it.
const UPKEEP: [&[u8]; 8] = [
    b"PING", b"AUTH", b"SELECT", b"HELLO", b"CLIENT", b"COMMAND", b"CLUSTER", b"INFO",
];
const WINDOW: &[u8] = b"<window>";

type Words = Vec<Vec<u8>>;

/// Stands before a Redis and keeps the commands that arrive, as their bytes.
struct Relay {
    address: SocketAddr,
    commands: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Relay {
    fn before(redis: &RedisServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Self {
            address: listener.local_addr().unwrap(),
            commands: Arc::default(),
        };
        let (upstream, commands) = (
            SocketAddr::from((Ipv4Addr::LOCALHOST, redis.port())),
            relay.commands.clone(),
        );
        // Ends with the test's process; its connections end with the server.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(upstream).unwrap();
                let (mut replies, mut back) =
                    (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut replies, &mut back);
                    let _ = back.shutdown(Shutdown::Both);
                });
                let commands = commands.clone();
                std::thread::spawn(move || pass(&client, &server, &commands));
            }
        });
        relay
    }

    fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.commands.lock().unwrap())
    }
}

/// Passes commands on until the client closes.
fn pass(client: &TcpStream, mut server: &TcpStream, commands: &Mutex<Vec<Vec<u8>>>) {
    let mut reader = BufReader::new(client);
    while let Some(raw) = next(&mut reader) {
        let name = words(&raw).remove(0).to_ascii_uppercase();
        if !UPKEEP.contains(&name.as_slice()) {
            // Kept before Redis has it, so before anybody is answered.
            commands.lock().unwrap().push(raw.clone());
        }
        if server.write_all(&raw).is_err() {
            return;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}

/// The bytes of the next command.
fn next(reader: &mut BufReader<&TcpStream>) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    let line = |reader: &mut BufReader<&TcpStream>, raw: &mut Vec<u8>| {
        let start = raw.len();
        reader
            .read_until(b'\n', raw)
            .ok()
            .filter(|read| *read > 0)?;
        std::str::from_utf8(&raw[start + 1..])
            .ok()?
            .trim_end()
            .parse::<usize>()
            .ok()
    };
    for _ in 0..line(reader, &mut raw)? {
        let length = line(reader, &mut raw)?;
        let start = raw.len();
        raw.resize(start + length + 2, 0);
        reader.read_exact(&mut raw[start..]).ok()?;
    }
    Some(raw)
}

/// The words of a command, which must be written in the one way that there is: an array of bulk strings.
fn words(raw: &[u8]) -> Words {
    let mut rest = raw
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let count: usize = std::str::from_utf8(&rest.next().unwrap()[1..])
        .unwrap()
        .parse()
        .unwrap();
    let words: Words = (0..count).map(|_| rest.nth(1).unwrap().to_vec()).collect();
    assert_eq!(encoded(&words), raw, "{}", String::from_utf8_lossy(raw));
    words
}

fn encoded(words: &[Vec<u8>]) -> Vec<u8> {
    let mut raw = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        raw.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        raw.extend_from_slice(word);
        raw.extend_from_slice(b"\r\n");
    }
    raw
}

/// The commands with `<window>` for the beginning of a window, which must contain now. EXPIRE has its length.
fn without_windows(commands: Vec<Vec<u8>>) -> Vec<Words> {
    let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
    let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<u64>().unwrap();
    let mut commands: Vec<Words> = commands.iter().map(|raw| words(raw)).collect();
    let lengths: Vec<(Vec<u8>, u64)> = commands
        .iter()
        .filter(|words| words[0] == b"EXPIRE")
        .map(|words| (words[1].clone(), number(&words[2])))
        .collect();
    for words in &mut commands {
        let length = lengths.iter().find(|(key, _)| *key == words[1]).unwrap().1;
        let at = words[1].iter().rposition(|byte| *byte == b'_').unwrap() + 1;
        let window = number(&words[1][at..]);
        assert!(
            window % length == 0 && window <= now + 1 && now <= window + length + 1,
            "{window} {length} {now}"
        );
        words[1].splice(at.., WINDOW.iter().copied());
    }
    commands
}

fn recorded(commands: &Value) -> Vec<Words> {
    let bytes = |word: &Value| word.as_str().unwrap().as_bytes().to_vec();
    let commands = commands.as_array().map(Vec::as_slice).unwrap_or_default();
    commands
        .iter()
        .map(|words| words.as_array().unwrap().iter().map(bytes).collect())
        .collect()
}

fn shown(commands: &[Words]) -> Vec<String> {
    commands
        .iter()
        .map(|words| String::from_utf8_lossy(&words.join(&b' ')).into_owned())
        .collect()
}

fn golden(name: &str) -> Value {
    serde_json::from_str(
        &std::fs::read_to_string(repository().join("golden/reference").join(name)).unwrap(),
    )
    .unwrap()
}

#[test]
fn redis_gets_the_bytes_that_the_reference_sends() {
    let (asked, recordings) = (golden("scenarios.json"), golden("commands.json"));
    for scenario in asked["scenarios"].as_array().unwrap() {
        check(
            scenario,
            asked["limits"].as_str().unwrap(),
            &recordings[scenario["name"].as_str().unwrap()],
        );
    }
}

fn check(scenario: &Value, limits: &str, recording: &Value) {
    let (redis, limits) = (redis(), Limits::new(limits));
    let relays = [Relay::before(&redis), Relay::before(&redis)];
    let [url, per_second] = [0, 1].map(|at| relays[at].address.to_string());
    let mut settings = vec![
        ("RUNTIME_ROOT", limits.root()),
        ("REDIS_URL", &url),
        ("EXPIRATION_JITTER_MAX_SECONDS", "0"),
        // Commands of one connection have an order.
        ("TIDEGATE_CORES", "1"),
        ("REDIS_POOL_SIZE", "1"),
        ("REDIS_PERSECOND_POOL_SIZE", "1"),
    ];
    let own = scenario["settings"].as_object().unwrap();
    settings.extend(
        own.iter()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap())),
    );
    if own.contains_key("REDIS_PERSECOND") {
        settings.push(("REDIS_PERSECOND_URL", &per_second));
    }
    let server = Server::start_bare(&settings);
    let requests = scenario["requests"].as_array().unwrap();
    assert_eq!(
        requests.len(),
        recording.as_array().unwrap().len(),
        "{}",
        scenario["name"]
    );
    for (request, expected) in requests.iter().zip(recording.as_array().unwrap()) {
        let status = post(server.http(), "/json", &request.to_string()).status;
        for (relay, expected) in relays
            .iter()
            .zip([&expected["commands"], &expected["per_second"]])
        {
            let (sent, expected) = (without_windows(relay.take()), recorded(expected));
            assert!(
                sent == expected,
                "{request}:\n{:#?}\n{:#?}",
                shown(&sent),
                shown(&expected)
            );
        }
        assert_eq!(
            u64::from(status),
            expected["status"].as_u64().unwrap(),
            "{request}"
        );
    }
}
