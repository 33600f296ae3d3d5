//! Several connections to one server.

use super::*;

#[tokio::test]
async fn a_spike_opens_connections_and_silence_closes_them() {
    let (listener, mut config) = listener().await;
    config.in_flight_commands = 1;
    config.max_connections = 3;
    config.idle_timeout = Duration::from_millis(100);
    let client = Client::new(config).unwrap();
    let caller = || {
        let client = client.clone();
        tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await })
    };
    let mut callers = vec![caller()];
    let mut streams = vec![greet(&listener).await];
    expect(&mut streams[0], GET_K).await;
    while streams.len() < 3 {
        // A full connection is waited for at first; only when its reply is late another one opens.
        tokio::time::sleep(Duration::from_millis(5)).await;
        callers.push(caller());
        let mut stream = greet(&listener).await;
        expect(&mut stream, GET_K).await;
        streams.push(stream);
    }
    for stream in &mut streams {
        stream.write_all(b"$-1\r\n").await.unwrap();
    }
    for caller in callers {
        caller.await.unwrap().reply().unwrap();
    }
    eventually("the excess is closed", async || {
        client.stats().connections == 1
    })
    .await;
    let closed = client.stats().closed;
    let again = caller();
    let mut serving = None;
    for (at, stream) in streams.iter_mut().enumerate() {
        let mut wire = vec![0; GET_K.len()];
        if stream.read_exact(&mut wire).await.is_ok() {
            serving = Some(at);
            stream.write_all(b"$-1\r\n").await.unwrap();
            break;
        }
    }
    assert!(serving.is_some());
    again.await.unwrap().reply().unwrap();
    assert_eq!(
        client.stats().closed,
        closed,
        "the last connection stays open however long it is idle"
    );
}

#[tokio::test]
async fn a_connection_silent_while_another_one_works_is_given_up() {
    let (listener, config) = listener().await;
    let client = Client::new(config).unwrap();
    let caller = || {
        let client = client.clone();
        tokio::spawn(async move { send_one(&client, "GET", &[Arg::Key(b"k")]).await })
    };
    let stuck = caller();
    let mut silent = greet(&listener).await;
    expect(&mut silent, GET_K).await;
    // The probe: nobody asked for it but the silence.
    let mut probe = greet(&listener).await;
    expect(&mut probe, WRITE_PROBE).await;
    probe
        .write_all(b"-NOPERM this user has no permissions\r\n")
        .await
        .unwrap();
    expect(&mut probe, PING).await;
    probe.write_all(b"+PONG\r\n").await.unwrap();
    let outcome = stuck.await.unwrap();
    let given_up = matches!(&outcome, Outcome::Unknown(Unknown::ConnectionLost { reason, .. }) if reason.contains("answers others"));
    assert!(given_up, "{outcome:?}");
    let next = caller();
    expect(&mut probe, GET_K).await;
    probe.write_all(b"$2\r\nok\r\n").await.unwrap();
    assert_eq!(next.await.unwrap().bytes().unwrap(), Some(&b"ok"[..]));
}

/// Reads one GET of each caller, then answers each with its key, all at once.
async fn answer_all(stream: &mut TcpStream, callers: usize) {
    let (mut read, mut keys) = (Vec::new(), Vec::new());
    while keys.len() < callers {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
        let text = String::from_utf8_lossy(&read);
        keys = text
            .split("\r\n")
            .skip(4)
            .step_by(5)
            .map(str::to_owned)
            .collect();
    }
    let replies: String = keys
        .iter()
        .map(|key| format!("${}\r\n{key}\r\n", key.len()))
        .collect();
    stream.write_all(replies.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn the_first_of_many_are_written_again_before_the_others_hear() {
    let (listener, mut config) = listener().await;
    config.max_connections = 1;
    let client = Client::new(config).unwrap();
    let mut callers = JoinSet::new();
    for caller in 0..64 {
        let client = client.clone();
        callers.spawn(async move {
            let key = format!("k{caller}");
            for _ in 0..2 {
                let outcome = send_one(&client, "GET", &[Arg::Key(key.as_bytes())]).await;
                assert_eq!(outcome.bytes().unwrap(), Some(key.as_bytes()));
            }
        });
    }
    let mut stream = greet(&listener).await;
    answer_all(&mut stream, 64).await;
    answer_all(&mut stream, 64).await;
    while let Some(caller) = callers.join_next().await {
        caller.unwrap();
    }
    let stats = client.stats();
    assert_eq!((stats.commands, stats.replies), (128, 128));
    assert_eq!(
        stats.writes, 3,
        "all of the first round, then each half of the second"
    );
}
