//! Servers behind TLS, with certificates that are right and others.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::*;

/// An authority of our own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// What a server shows that has a certificate for `name`, up to the end of `year`.
    fn server(&self, name: &str, year: i32) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        acceptor(&certificate, &key)
    }
}

/// What a server shows that has signed its certificate itself, and the certificate.
fn self_signed(is_ca: IsCa) -> (TlsAcceptor, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = is_ca;
    let certificate = params.self_signed(&key).unwrap();
    (acceptor(&certificate, &key), certificate.pem())
}

fn acceptor(certificate: &Certificate, key: &KeyPair) -> TlsAcceptor {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        );
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

/// Does the same with every connection, until it is dropped.
struct Listener {
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Listener {
    fn start<F>(deed: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(deed(socket));
            }
        });
        Self {
            address,
            _runtime: runtime,
        }
    }

    /// A proxy that ends TLS in front of `server`.
    fn proxy(acceptor: TlsAcceptor, server: SocketAddr) -> Self {
        Self::start(move |socket| {
            let acceptor = acceptor.clone();
            async move {
                let mut theirs = acceptor.accept(socket).await?;
                let mut ours = TcpStream::connect(server).await?;
                tokio::io::copy_bidirectional(&mut theirs, &mut ours)
                    .await
                    .map(|_| ())
            }
        })
    }

    /// A server that says this over TLS, and closes the connection without saying that this is the end.
    fn cut(acceptor: TlsAcceptor, said: &'static str) -> Self {
        Self::start(move |socket| {
            let acceptor = acceptor.clone();
            async move {
                let mut theirs = acceptor.accept(socket).await?;
                // What was not read would make the end an error.
                let _ = theirs.read(&mut [0; 4096]).await?;
                theirs.write_all(said.as_bytes()).await?;
                theirs.flush().await
            }
        })
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

#[test]
fn a_server_behind_tls_is_asked_when_its_authority_is_trusted() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a b<a"));
    let authority = Authority::new();
    let proxy = Listener::proxy(authority.server("127.0.0.1", 2100), flows.api());
    let files = Files::new(&[("ca.pem", &authority.pem), ("empty", "")]);
    let (url, file) = (proxy.url(), files.text("ca.pem"));
    let list = ["workflow", "list", "--server", &url];
    run(&mut binary(&list))
        .expect(UNAVAILABLE)
        .says("--cacert FILE or TIDEGATE_CACERT");
    run(&mut binary(&[&list[..], &["--cacert", &file]].concat()))
        .expect(DONE)
        .says(&id[..12]);
    run(binary(&list).env("TIDEGATE_CACERT", &file))
        .expect(DONE)
        .says(&id[..12]);
    let watch = [
        "--server", &url, "--cacert", &file, "workflow", "watch", &id,
    ];
    let mut child = binary(&watch).stdout(Stdio::piped()).spawn().unwrap();
    work(&flows);
    assert_eq!(child.wait().unwrap().code(), Some(DONE));
    for (name, reason) in [
        ("empty", "it has no certificate in PEM form"),
        ("missing", "cannot be read"),
    ] {
        run(&mut binary(
            &[&list[..], &["--cacert", &files.text(name)]].concat(),
        ))
        .expect(USAGE)
        .says(reason);
    }
}

#[test]
fn what_is_wrong_with_a_certificate_is_said() {
    let flows = Flows::start(&[]);
    let authority = Authority::new();
    let files = Files::new(&[("ca.pem", &authority.pem)]);
    let check = |name: &str, year: i32, reason: &str| {
        let proxy = Listener::proxy(authority.server(name, year), flows.api());
        let list = [
            "workflow",
            "list",
            "--server",
            &proxy.url(),
            "--cacert",
            &files.text("ca.pem"),
        ];
        run(&mut binary(&list)).expect(UNAVAILABLE).says(reason);
    };
    check("elsewhere.example", 2100, "it is for another name");
    check("127.0.0.1", 2021, "it has expired");
    let plain = format!("https://{}", flows.api());
    run(&mut binary(&["workflow", "list", "--server", &plain]))
        .expect(UNAVAILABLE)
        .says("does not speak TLS");
    let proxy = Listener::proxy(authority.server("127.0.0.1", 2100), flows.api());
    let plain = proxy.address.to_string();
    run(&mut binary(&["workflow", "list", "--server", &plain]))
        .expect(UNAVAILABLE)
        .says("write https://");
}

#[test]
fn a_certificate_that_may_sign_others_is_not_taken_and_the_advice_helps() {
    let flows = Flows::start(&[]);
    let list = |is_ca: IsCa| {
        let (acceptor, pem) = self_signed(is_ca);
        let files = Files::new(&[("ca.pem", &pem)]);
        let proxy = Listener::proxy(acceptor, flows.api());
        run(&mut binary(&[
            "workflow",
            "list",
            "--server",
            &proxy.url(),
            "--cacert",
            &files.text("ca.pem"),
        ]))
    };
    let refused = list(IsCa::Ca(BasicConstraints::Unconstrained)).expect(UNAVAILABLE);
    let refused = refused
        .says("it is that of an authority")
        .says("self-signed with basicConstraints=CA:FALSE");
    assert!(!refused.error.contains("CaUsed"), "{refused:?}");
    list(IsCa::ExplicitNoCa).expect(DONE);
}

#[test]
fn an_end_without_notice_is_told_in_words() {
    let authority = Authority::new();
    let files = Files::new(&[("ca.pem", &authority.pem)]);
    let check = |listener: &Listener, reason: &str| {
        let list = [
            "workflow",
            "list",
            "--server",
            &listener.url(),
            "--cacert",
            &files.text("ca.pem"),
        ];
        let ended = run(&mut binary(&list)).expect(UNAVAILABLE).says(reason);
        let is_plain = ["docs.rs", "close_notify", "eof"]
            .iter()
            .all(|word| !ended.error.contains(word));
        assert!(is_plain, "{}", ended.error);
    };
    for said in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{",
    ] {
        let cut = Listener::cut(authority.server("127.0.0.1", 2100), said);
        check(&cut, "the other end closed it without notice");
    }
    let mute =
        Listener::start(|mut socket| async move { socket.read(&mut [0; 4096]).await.map(|_| ()) });
    check(&mute, "closed the connection before TLS was agreed on");
}
