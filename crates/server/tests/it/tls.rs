//! TLS on the ports: who is let in, certificates that change, and clients that mean harm.

mod api;
pub(crate) mod authority;
mod grpc;
mod hostile;
mod reload;
mod settings;
mod stores;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::support::PATIENCE;
pub(crate) use authority::{Authority, Folder, Issued};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The domain `shop` and the descriptor `free: x`, framed.
const CALL: Bytes =
    Bytes::from_static(b"\0\0\0\0\x13\x0a\x04shop\x12\x0b\x0a\x09\x0a\x04free\x12\x01x");

/// A client that trusts `authority`, shows `shown`, and offers this protocol.
fn client(authority: &Authority, shown: Option<&Issued>, protocol: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
        .unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some(Issued { chain, key }) => {
            let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
                .map(Result::unwrap)
                .collect();
            builder
                .with_client_auth_cert(
                    chain,
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// A connection to the gRPC port.
async fn connect(
    address: SocketAddr,
    authority: &Authority,
    shown: Option<&Issued>,
) -> io::Result<TlsStream<TcpStream>> {
    secure(
        TcpStream::connect(address).await?,
        &client(authority, shown, b"h2"),
    )
    .await
}

async fn secure<I: AsyncRead + AsyncWrite + Unpin>(
    socket: I,
    client: &TlsConnector,
) -> io::Result<TlsStream<I>> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    timeout(PATIENCE, client.connect(name, socket))
        .await
        .expect("the handshake ends")
}

/// A decision over a connection, which is closed then: its gRPC status.
async fn decide<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    socket: I,
) -> Result<String, h2::Error> {
    let (sender, connection) = timeout(PATIENCE, h2::client::handshake(socket))
        .await
        .expect("HTTP/2 begins")?;
    let connection = tokio::spawn(connection);
    let status = ask(&mut sender.ready().await?).await;
    connection.abort();
    status
}

/// A decision over a connection that stays.
async fn ask(sender: &mut h2::client::SendRequest<Bytes>) -> Result<String, h2::Error> {
    let request =
        http::Request::post(format!("https://x{PATH}")).header("content-type", "application/grpc");
    let (answer, mut body) =
        sender.send_request(request.header("te", "trailers").body(()).unwrap(), false)?;
    body.send_data(CALL, true)?;
    let answer = timeout(PATIENCE, answer).await.expect("it is answered")?;
    let (head, mut body) = answer.into_parts();
    while let Some(bytes) = body.data().await {
        let _ = body.flow_control().release_capacity(bytes?.len());
    }
    let trailers = body.trailers().await?.unwrap_or(head.headers);
    Ok(trailers["grpc-status"].to_str().unwrap().to_owned())
}

/// Whether a client is let in and answered.
async fn is_served(address: SocketAddr, authority: &Authority, shown: Option<&Issued>) -> bool {
    match connect(address, authority, shown).await {
        Ok(stream) => decide(stream).await.is_ok_and(|status| status == "0"),
        Err(_) => false,
    }
}
