//! Peers that speak another language, or none: the process never dies of them.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{PATIENCE, Server, ask, request};

/// Writes `bytes` to the gRPC port and reads until the server closes.
fn throw(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.grpc()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may close before it has read all of it.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

async fn assert_alive(server: &Server) {
    let answer = ask(
        &server.channel().await,
        request("shop", &[&[("free", "x")]]),
    )
    .await;
    assert!(answer.is_ok(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn garbage_on_the_grpc_port_ends_its_own_connection_only() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let server = Server::start(&[]);
    let good = server.channel().await;
    // A fixed sequence, so that a failure can be repeated.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut noise = |length: usize| -> Vec<u8> {
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    };
    for length in [0, 1, 9, 24, 100, 5000, 100_000] {
        throw(&server, &noise(length));
        throw(&server, &[PREFACE, &noise(length)].concat());
    }
    throw(
        &server,
        &[
            PREFACE,
            b"\0\0\0\x04\0\0\0\0\0",
            b"\xff\xff\xff\x01\x05\0\0\0\x01",
        ]
        .concat(),
    );
    let http1 = throw(&server, b"GET /healthcheck HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(
        !http1.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&http1)
    );
    assert!(
        ask(&good, request("shop", &[&[("free", "x")]]))
            .await
            .is_ok(),
        "another connection is not touched"
    );
    assert_alive(&server).await;
}

/// A codec whose messages are bytes as they are.
#[derive(Debug, Default, Clone)]
struct Raw;

impl tonic::codec::Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Raw;
    type Decoder = Raw;
    fn encoder(&mut self) -> Raw {
        Raw
    }
    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl tonic::codec::Encoder for Raw {
    type Item = Vec<u8>;
    type Error = tonic::Status;
    fn encode(
        &mut self,
        item: Vec<u8>,
        out: &mut tonic::codec::EncodeBuf<'_>,
    ) -> Result<(), tonic::Status> {
        bytes::BufMut::put_slice(out, &item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Raw {
    type Item = ();
    type Error = tonic::Status;
    fn decode(&mut self, _: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<()>, tonic::Status> {
        Ok(Some(()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn messages_that_are_not_protobuf_are_refused() {
    let server = Server::start(&[]);
    let mut client = tonic::client::Grpc::new(server.channel().await);
    for message in [
        b"\x0a\x04\xff\xfe\xfd\xfc".to_vec(), // a domain that is not UTF-8
        b"\x0a\x7f".to_vec(),                 // a domain longer than the message
        b"\x12\x06\x0a\x04\x0a\x02\xc3\x28".to_vec(), // a key that is not UTF-8
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(), // a tag without end
    ] {
        client.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static(
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        );
        let error = client
            .unary(tonic::Request::new(message.clone()), path, Raw)
            .await
            .unwrap_err();
        assert_eq!(
            error.code(),
            tonic::Code::Internal,
            "{message:x?}: {error:?}"
        );
    }
    for path in [
        "/envoy.service.ratelimit.v3.RateLimitService/Other",
        "/nothing",
        "/",
    ] {
        client.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static(path);
        let error = client
            .unary(tonic::Request::new(Vec::new()), path, Raw)
            .await
            .unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unimplemented);
    }
    assert_alive(&server).await;
}

/// Sends a message, and returns the refusal.
async fn refusal(server: &Server, message: Vec<u8>) -> tonic::Status {
    let mut client = tonic::client::Grpc::new(server.channel().await);
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(
        "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    );
    client
        .unary(tonic::Request::new(message), path, Raw)
        .await
        .unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn more_descriptors_than_allowed_are_refused_before_they_are_decoded() {
    let server = Server::start(&[]);
    let pairs: [(&str, &str); 1] = [("user", "x")];
    let channel = server.channel().await;
    let error = ask(&channel, request("shop", &vec![&pairs[..]; 1_001]))
        .await
        .unwrap_err();
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
    let told = "the request has more than 1000 descriptors: send fewer at a time, or raise TIDEGATE_MAX_DESCRIPTORS";
    assert_eq!(error.message(), told);
    let entries: Vec<_> = vec![("user", "x"); 9_000];
    let error = ask(&channel, request("shop", &[&entries, &entries]))
        .await
        .unwrap_err();
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
    assert!(
        error.message().contains("more than 16000 entries"),
        "{error:?}"
    );

    // A domain, and then nearly 4 MiB of descriptors without entries. The last bytes are not protobuf: who decodes, sees that.
    let message = [
        b"\x0a\x01d",
        b"\x12\x00".repeat(2_097_000).as_slice(),
        b"\xff",
    ]
    .concat();
    let error = refusal(&server, message).await;
    assert_eq!(
        (error.code(), error.message()),
        (tonic::Code::InvalidArgument, told)
    );

    assert_eq!(
        ask(&channel, request("shop", &vec![&pairs[..]; 1_000]))
            .await
            .unwrap()
            .statuses
            .len(),
        1_000
    );
    assert_eq!(
        server.stat("ratelimit.service.call.should_rate_limit.service_error"),
        3
    );
    assert_eq!(
        server.stat("ratelimit_server.ShouldRateLimit.total_requests"),
        4
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn compressed_requests_are_refused_unread() {
    let server = Server::start(&[]);
    let mut client = tonic::client::Grpc::new(server.channel().await);
    for encoding in ["gzip", "deflate", "zstd"] {
        client.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static(
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        );
        let mut message = tonic::Request::new(b"\x0a\x01d".to_vec());
        message
            .metadata_mut()
            .insert("grpc-encoding", encoding.parse().unwrap());
        let error = client.unary(message, path, Raw).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unimplemented, "{error:?}");
    }
    assert_alive(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn thousands_of_descriptors_are_answered() {
    let server = Server::start(&[("TIDEGATE_MAX_DESCRIPTORS", "10000")]);
    let pairs = [("plan", "gold"), ("user", "x")];
    let descriptors: Vec<&[(&str, &str)]> = vec![&pairs; 10_000];
    let answer = ask(&server.channel().await, request("shop", &descriptors))
        .await
        .unwrap();
    assert_eq!(answer.statuses.len(), 10_000);
}
