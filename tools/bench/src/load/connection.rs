//! One HTTP/2 connection of the load and its streams.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use tidegate_pipeline::Address;
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::figures::{Answer, grpc_code};
use crate::load::run::SharedLoad;

/// Delay before a new attempt to connect: long enough not to keep a core busy while a server is
/// down, and short enough to notice its return.
const RECONNECT_DELAY: Duration = Duration::from_millis(20);
/// Bytes of the flow control windows. Answers are tens of bytes, so no stream ever waits.
const WINDOW_BYTES: u32 = 16 << 20;

/// Keeps one connection with its streams busy until the run has no more requests.
///
/// Dropping the future drops the connection; calls in flight are not counted.
pub(crate) async fn drive(run: Rc<SharedLoad>) {
    while !run.session.schedule.is_finished() {
        if !serve_once(&run).await {
            sleep(RECONNECT_DELAY).await;
        }
    }
}

/// Serves one connection until it ends. Returns false if there was none.
async fn serve_once(run: &Rc<SharedLoad>) -> bool {
    let Some((sender, mut tasks)) = connect(run).await else {
        run.session
            .count(Answer::Failed("could not connect"), Duration::ZERO);
        return false;
    };
    for _ in 0..run.streams {
        tasks.spawn_local(stream(run.clone(), sender.clone()));
    }
    drop(sender);
    tasks.join_all().await;
    true
}

/// The sender of an HTTP/2 connection, and the task that drives the connection.
type Connection = (SendRequest<Bytes>, JoinSet<()>);

/// Connects to the server. `None` if it does not accept.
async fn connect(run: &SharedLoad) -> Option<Connection> {
    match &run.address {
        Address::Tcp { host, port } => {
            let socket = TcpStream::connect((host.as_str(), *port)).await.ok()?;
            // A call is one small write that must not wait for the previous answer.
            socket.set_nodelay(true).ok()?;
            handshake(socket, run).await
        }
        Address::Unix(path) => handshake(UnixStream::connect(path).await.ok()?, run).await,
    }
}

async fn handshake<S>(socket: S, run: &SharedLoad) -> Option<Connection>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .enable_push(false);
    // A stream may be refused until the server's settings are known.
    builder.initial_max_send_streams(usize::from(run.streams));
    let (sender, connection) = builder.handshake(socket).await.ok()?;
    let mut tasks = JoinSet::new();
    tasks.spawn_local(async move {
        // The error reaches every stream, and is counted there.
        let _ = connection.await;
    });
    Some((sender, tasks))
}

/// Sends calls on one stream at a time, until the connection or the requests end.
async fn stream(run: Rc<SharedLoad>, mut sender: SendRequest<Bytes>) {
    loop {
        if std::future::poll_fn(|context| sender.poll_ready(context))
            .await
            .is_err()
        {
            return;
        }
        let Some(due) = run.session.schedule.next().await else {
            return;
        };
        match call(&run, &mut sender).await {
            Ok(answer) => run.session.count(answer, due.elapsed()),
            Err(error) => {
                run.session
                    .count(Answer::Failed(failure(&error)), Duration::ZERO);
                if !error.is_reset() {
                    return;
                }
            }
        }
    }
}

fn failure(error: &h2::Error) -> &'static str {
    match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) => "stream refused",
        _ if error.is_reset() => "stream reset",
        _ if error.is_go_away() => "connection closed by GOAWAY", // plain: the name in h2
        _ if error.is_io() => "connection lost",
        _ => "protocol error",
    }
}

async fn call(run: &SharedLoad, sender: &mut SendRequest<Bytes>) -> Result<Answer, h2::Error> {
    let (response, mut request) = sender.send_request(run.request.clone(), false)?;
    request.send_data(run.next_body(), true)?;
    let (head, mut body) = response.await?.into_parts();
    if head.status != http::StatusCode::OK {
        return Ok(Answer::Failed("HTTP status other than 200"));
    }
    // The frame header and the first field of the message, which holds the decision.
    let mut start = [0_u8; 7];
    let mut filled = 0;
    while let Some(data) = body.data().await {
        let data = data?;
        let part = data.len().min(start.len() - filled);
        start[filled..filled + part].copy_from_slice(&data[..part]);
        filled += part;
        body.flow_control().release_capacity(data.len())?;
    }
    let trailers = body.trailers().await?.unwrap_or(head.headers);
    let status = trailers.get("grpc-status");
    let status = status.and_then(|status| status.to_str().ok());
    Ok(read(status, &start[..filled]))
}

/// Reads the answer from a status and the start of a body.
fn read(status: Option<&str>, start: &[u8]) -> Answer {
    const OVERALL_CODE: u8 = 1 << 3;
    match (status, start) {
        (Some("0"), [_, _, _, _, _, OVERALL_CODE, 1]) => Answer::Ok,
        (Some("0"), [_, _, _, _, _, OVERALL_CODE, 2]) => Answer::OverLimit,
        (Some("0"), _) => Answer::Failed("no decision"),
        (Some(code), _) => Answer::Failed(grpc_code(code.parse().unwrap_or(2))),
        (None, _) => Answer::Failed("no gRPC status"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decision_is_read_from_status_and_first_field() {
        let check = |status: Option<&str>, start: &[u8], expected| {
            assert_eq!(read(status, start), expected)
        };
        check(Some("0"), b"\0\0\0\0\x02\x08\x01", Answer::Ok);
        check(Some("0"), b"\0\0\0\0\x04\x08\x02", Answer::OverLimit);
        check(Some("0"), b"\0\0\0\0\0", Answer::Failed("no decision"));
        check(Some("14"), b"", Answer::Failed("UNAVAILABLE"));
        check(Some("x"), b"", Answer::Failed("UNKNOWN"));
        check(
            None,
            b"\0\0\0\0\x02\x08\x01",
            Answer::Failed("no gRPC status"),
        );
    }
}
