//! A small rate limit server whose answers a test chooses.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use tokio::net::TcpStream;

/// The answer of the server to a request, by its number over all connections.
#[derive(Clone, Copy)]
pub(crate) enum Act {
    Ok,
    OverLimit,
    /// Ends the call with a gRPC status and no message.
    Status(&'static str),
    Refuse,
    /// Announces the end of the connection, after this request.
    GoAway,
    /// Cuts the connection at once.
    Cut,
}

pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
}

impl Peer {
    /// Serves on a thread of its own until the test process ends.
    pub(crate) fn start(act: impl Fn(u64) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(accept(listener, Arc::new(act)));
        });
        Self { address }
    }
}

type Script = Arc<dyn Fn(u64) -> Act + Send + Sync>;

async fn accept(listener: TcpListener, act: Script) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let served = Arc::new(std::sync::atomic::AtomicU64::new(0));
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (act, served) = (act.clone(), served.clone());
        tokio::spawn(async move {
            let next = || act(served.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
            let _ = serve(socket, next).await;
        });
    }
}

async fn serve(socket: TcpStream, next: impl Fn() -> Act) -> Result<(), h2::Error> {
    let mut connection = h2::server::handshake(socket).await?;
    while let Some(request) = connection.accept().await {
        let (_, mut respond) = request?;
        match next() {
            Act::Ok => answer(&mut respond, Some(1), "0")?,
            Act::OverLimit => answer(&mut respond, Some(2), "0")?,
            Act::Status(status) => answer(&mut respond, None, status)?,
            Act::Refuse => respond.send_reset(h2::Reason::REFUSED_STREAM),
            Act::GoAway => {
                answer(&mut respond, Some(1), "0")?;
                connection.graceful_shutdown();
            }
            Act::Cut => return Ok(()),
        }
    }
    Ok(())
}

fn answer(
    respond: &mut SendResponse<Bytes>,
    code: Option<u8>,
    status: &str,
) -> Result<(), h2::Error> {
    let head = http::Response::builder().header("content-type", "application/grpc");
    let Some(code) = code else {
        // A call without a message has its status in the only header block.
        respond.send_response(head.header("grpc-status", status).body(()).unwrap(), true)?;
        return Ok(());
    };
    let mut stream = respond.send_response(head.body(()).unwrap(), false)?;
    stream.send_data(Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, code]), false)?;
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    stream.send_trailers(trailers)
}
