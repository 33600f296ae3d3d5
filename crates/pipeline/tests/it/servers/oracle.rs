//! The same commands through another client: both must tell the same story.

use std::sync::Mutex;

use proptest::prelude::*;
use redis::Value;
use tidegate_pipeline::test_util::RedisServer;
use tidegate_pipeline::{Arg, Batch, Client, Outcome, Protocol, Rejected, Reply, ServerError};

use crate::support::soon;

/// A command: its name, and its arguments, the first of which is a key unless the command has none.
type Line = (&'static str, Vec<Vec<u8>>);

fn key() -> impl Strategy<Value = Vec<u8>> {
    // Few, so that commands meet values that others left there, often of another type.
    (0..4_u8).prop_map(|index| format!("key-{index}").into_bytes())
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        (-3..100_i64).prop_map(|number| number.to_string().into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..40),
        (0..20_000_usize).prop_map(|length| vec![b'\r'; length]),
    ]
}

fn small() -> impl Strategy<Value = Vec<u8>> {
    (-4..5_i64).prop_map(|number| number.to_string().into_bytes())
}

fn line() -> impl Strategy<Value = Line> {
    let keyed = |name: &'static str| key().prop_map(move |key| (name, vec![key]));
    let valued = |name: &'static str| {
        (key(), value()).prop_map(move |(key, value)| (name, vec![key, value]))
    };
    let field = |name: &'static str| {
        (key(), small()).prop_map(move |(key, field)| (name, vec![key, field]))
    };
    let three = |name: &'static str| {
        (key(), small(), value()).prop_map(move |(key, a, b)| (name, vec![key, a, b]))
    };
    let range = |name: &'static str| {
        (key(), small(), small()).prop_map(move |(key, a, b)| (name, vec![key, a, b]))
    };
    let nested = (small(), value()).prop_map(|(number, text)| {
        let script = b"return {1, {ARGV[1], {redis.error_reply('ERR inner'), false}}, redis.status_reply('fine'), {}}";
        ("EVAL", vec![script.to_vec(), b"0".to_vec(), text, number])
    });
    prop_oneof![
        valued("SET"),
        keyed("GET"),
        keyed("DEL"),
        keyed("TYPE"),
        valued("APPEND"),
        field("INCRBY"),
        keyed("TTL"),
        valued("RPUSH"),
        keyed("LPOP"),
        range("LRANGE"),
        three("HSET"),
        field("HGET"),
        keyed("STRLEN"),
        valued("SADD"),
        (key(), key()).prop_map(|(one, two)| ("MGET", vec![one, two])),
        value().prop_map(|text| ("ECHO", vec![text])),
        nested,
        keyed("NONSENSE"),
        keyed("SET"),
    ]
}

/// A unit: one command, or several in a transaction.
fn unit() -> impl Strategy<Value = Vec<Line>> {
    prop_oneof![
        4 => line().prop_map(|line| vec![line]),
        1 => proptest::collection::vec(line(), 0..4).prop_map(|lines| {
            let begin = ("MULTI", Vec::new());
            std::iter::once(begin).chain(lines).chain([("EXEC", Vec::new())]).collect()
        }),
    ]
}

/// A reply in words that both clients have.
#[derive(Debug, PartialEq)]
enum Told {
    Null,
    Integer(i64),
    Bytes(Vec<u8>),
    Array(Vec<Told>),
    Error(String),
}

fn ours(outcome: &Outcome) -> Told {
    match outcome {
        Outcome::Reply(reply) => reply_of_ours(reply),
        Outcome::ServerError(ServerError { message })
        | Outcome::Rejected(Rejected { message, .. }) => Told::Error(message.trim_end().to_owned()),
        other => panic!("no answer: {other:?}"),
    }
}

fn reply_of_ours(reply: &Reply) -> Told {
    match reply {
        Reply::Null => Told::Null,
        Reply::Integer(number) => Told::Integer(*number),
        Reply::Simple(bytes) | Reply::Bulk(bytes) => Told::Bytes(bytes.to_vec()),
        Reply::Array(elements) => Told::Array(elements.iter().map(element_of_ours).collect()),
    }
}

fn element_of_ours(element: &Result<Reply, ServerError>) -> Told {
    match element {
        Ok(reply) => reply_of_ours(reply),
        Err(error) => Told::Error(error.message.trim_end().to_owned()),
    }
}

fn theirs(value: &Value) -> Told {
    match value {
        Value::Nil => Told::Null,
        Value::Int(number) => Told::Integer(*number),
        Value::BulkString(bytes) => Told::Bytes(bytes.clone()),
        Value::SimpleString(text) => Told::Bytes(text.clone().into_bytes()),
        Value::Okay => Told::Bytes(b"OK".to_vec()),
        Value::Array(values) => Told::Array(values.iter().map(theirs).collect()),
        Value::ServerError(error) => Told::Error(
            format!("{} {}", error.code(), error.details().unwrap_or_default())
                .trim_end()
                .to_owned(),
        ),
        other => panic!("not a reply of RESP2: {other:?}"),
    }
}

/// All commands in one write, and the replies as they come, errors too.
fn through_theirs(connection: &mut redis::Connection, lines: &[Line]) -> Vec<Told> {
    let mut wire = Vec::new();
    for (name, args) in lines {
        let mut command = redis::cmd(name);
        args.iter().for_each(|arg| _ = command.arg(&arg[..]));
        wire.extend(command.get_packed_command());
    }
    connection.send_packed_command(&wire).unwrap();
    lines
        .iter()
        .map(|_| theirs(&connection.recv_response().unwrap()))
        .collect()
}

async fn through_ours(client: &Client, units: &[Vec<Line>]) -> Vec<Told> {
    let mut batch = Batch::new();
    for unit in units {
        let mut builder = batch.unit();
        for (name, args) in unit {
            let args: Vec<Arg<'_>> = args.iter().map(|arg| Arg::Bytes(arg)).collect();
            builder = builder.command(name, &args);
        }
    }
    client.send(batch, soon()).await.iter().map(ours).collect()
}

#[test]
fn another_client_gets_the_same_replies() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let servers =
        runtime.block_on(async { [RedisServer::start().await, RedisServer::start().await] });
    let clients = [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
        let mut config = servers[0].config();
        config.protocol = protocol;
        runtime.block_on(async { Client::new(config).unwrap() })
    });
    let other = redis::Client::open(format!("redis://127.0.0.1:{}", servers[1].port())).unwrap();
    let connection = Mutex::new(other.get_connection().unwrap());
    let config = ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(units in proptest::collection::vec(unit(), 1..60), protocol in 0..2_usize)| {
        for server in &servers {
            assert_eq!(server.raw("FLUSHALL"), "+OK\r\n");
        }
        let lines: Vec<Line> = units.iter().flatten().cloned().collect();
        let expected = through_theirs(&mut connection.lock().unwrap(), &lines);
        let told = runtime.block_on(through_ours(&clients[protocol], &units));
        for (at, line) in lines.iter().enumerate() {
            assert_eq!(told[at], expected[at], "{line:?}");
        }
    });
}
