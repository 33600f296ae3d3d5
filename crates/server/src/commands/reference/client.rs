//! `ratelimit_client`: sends one request to a rate limit service.

use std::error::Error as _;
use std::io::{self, Write as _};
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::flags::{Flag, Given, Kind};
use super::prototext::{line, quoted};
use super::{FAILED, Failed, MISTAKE, fail, say};
use crate::net::dial::{End, OverheadBytes, Peer, failure, host_and_port};
use crate::net::runtime::runtime;
use crate::rls::json::dynamic;
use crate::rls::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor::Entry,
};
use crate::rls::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::settings::Traces;
use crate::telemetry::traces::OneCall;
use crate::tls::{NamedFile, Pair, PeerTls};

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Timeout of the call. The reference waits without limit.
const PATIENCE: Duration = Duration::from_secs(60);
/// Size limit of an answer in bytes, the default of gRPC clients.
const ANSWER: usize = 4 << 20;

const DESCRIPTORS: &str = "descriptors";
const DIAL: &str = "dial_string";
const DOMAIN: &str = "domain";
const CERTIFICATE: &str = "grpc-cert-file";
const KEY: &str = "grpc-key-file";
const AUTHORITY: &str = "grpc-server-ca-file";
const USE_TLS: &str = "grpc-use-tls";
const SPANS: &str = "oltp-protocol";

/// In alphabetical order, in which they are printed.
pub(super) const FLAGS: [Flag; 8] = [
    text_or(
        DESCRIPTORS,
        Kind::List(check),
        "",
        "a descriptor, as <key>=<value>,<key>=<value>,..; may be given several times",
    ),
    text_or(
        DIAL,
        Kind::Text,
        "localhost:8081",
        "the service, as <host>:<port>",
    ),
    text_or(DOMAIN, Kind::Text, "", "the domain to ask for"),
    text_or(
        CERTIFICATE,
        Kind::Text,
        "",
        "a file with the certificate that is shown to the service",
    ),
    text_or(
        KEY,
        Kind::Text,
        "",
        "a file with the key of that certificate",
    ),
    text_or(
        AUTHORITY,
        Kind::Text,
        "",
        "a file with authorities that are trusted in addition to the system's",
    ),
    text_or(USE_TLS, Kind::Switch, "false", "use TLS to the service"),
    text_or(
        SPANS,
        Kind::Text,
        "",
        "http or grpc: sends a span of the call to the collector of OTEL_EXPORTER_OTLP_ENDPOINT",
    ),
];

const fn text_or(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    usage: &'static str,
) -> Flag {
    Flag {
        name,
        kind,
        default,
        usage,
    }
}

fn check(text: &str) -> Result<(), &'static str> {
    entries(text).map(drop).ok_or("invalid descriptor list")
}

/// Entries of a descriptor. None unless every item has exactly one `=`.
fn entries(text: &str) -> Option<Vec<Entry>> {
    let entry = |item: &str| {
        let (key, value) = item
            .split_once('=')
            .filter(|(_, value)| !value.contains('='))?;
        Some(Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    };
    text.split(',').map(entry).collect()
}

/// Runs the tool with the output of the reference.
pub(super) fn run(given: &Given) -> Result<(), Failed> {
    for flag in &FLAGS {
        let value = match flag.name {
            DESCRIPTORS => given
                .all(DESCRIPTORS)
                .filter_map(entries)
                .map(|entries| shown(&entries))
                .collect(),
            name => given.text(&FLAGS, name).to_owned(),
        };
        say(&format!(
            "Flag: --{}={}",
            flag.name,
            quoted(value.as_bytes())
        ))?;
    }
    let spans = given.text(&FLAGS, SPANS);
    if !matches!(spans, "" | "http" | "grpc") {
        say(&format!("Invalid otlptrace client protocol: {spans}"))?;
        return Err(Failed(MISTAKE));
    }
    let peer = match peer(given) {
        Ok(peer) => peer,
        Err(reason) => return fail(&format!("error connecting: {reason}")),
    };
    let traces = match spans {
        "" => None,
        protocol => match Traces::of_client(protocol) {
            Ok(traces) => Some(traces),
            Err(mistakes) => return fail(&format!("error connecting: {mistakes}")),
        },
    };
    let work = async {
        match &traces {
            None => ask(&peer, Request::new(request(given))).await,
            Some(traces) => ask_traced(&peer, request(given), traces).await,
        }
    };
    match runtime().map_err(|_| Failed(FAILED))?.block_on(work) {
        Ok(response) => say(&format!("response: {}", line(&dynamic(&response)))),
        Err(status) => {
            let code = status.code();
            let text = status.message();
            fail(&format!(
                "request error: rpc error: code = {} desc = {text}",
                go_name(code)
            ))
        }
    }
}

/// A descriptor in the format of the reference.
fn shown(entries: &[Entry]) -> String {
    let entry = |Entry { key, value }: &Entry| format!(" <key={key}, value={value}> ");
    format!("[{}] ", entries.iter().map(entry).collect::<String>())
}

fn request(given: &Given) -> RateLimitRequest {
    let descriptor = |entries| RateLimitDescriptor {
        entries,
        ..RateLimitDescriptor::default()
    };
    let descriptors = given
        .all(DESCRIPTORS)
        .filter_map(entries)
        .map(descriptor)
        .collect();
    RateLimitRequest {
        domain: given.text(&FLAGS, DOMAIN).to_owned(),
        descriptors,
        hits_addend: 1,
    }
}

fn peer(given: &Given) -> Result<Peer, String> {
    let address = given.text(&FLAGS, DIAL);
    let (host, port) =
        host_and_port(address).ok_or_else(|| format!("-{DIAL}={address}: expected host:port"))?;
    let file = |variable: &'static str| {
        let path = given.text(&FLAGS, variable);
        (!path.is_empty()).then(|| NamedFile {
            variable,
            path: path.into(),
        })
    };
    if !given.is_on(&FLAGS, USE_TLS) {
        return Ok(Peer {
            host,
            port,
            tls: None,
        });
    }
    let pair = file(CERTIFICATE)
        .zip(file(KEY))
        .map(|(chain, key)| Pair { chain, key });
    let tls = PeerTls {
        authorities: file(AUTHORITY),
        pair,
        name: None,
        protocol: b"h2",
    };
    match tls.load() {
        Ok(_) => Ok(Peer {
            host,
            port,
            tls: Some(tls),
        }),
        Err(flaws) => Err(flaws
            .iter()
            .map(|flaw| format!("-{flaw}"))
            .collect::<Vec<_>>()
            .join("; ")),
    }
}

/// Sends the request like [`send_request`], and exports a span of the call afterwards. A failed
/// export does not change the exit code.
async fn ask_traced(
    peer: &Peer,
    request: RateLimitRequest,
    traces: &Traces,
) -> Result<RateLimitResponse, Status> {
    let call = OneCall::begin(METHOD.trim_start_matches('/'));
    let mut request = Request::new(request);
    if let Ok(parent) = call.traceparent().parse() {
        request.metadata_mut().insert("traceparent", parent);
    }
    let answer = ask(peer, request).await;
    let (code, failure) = match &answer {
        Ok(_) => (Code::Ok, None),
        Err(status) => (status.code(), Some(status.message())),
    };
    if let Err(reason) = call.end(code, failure, traces).await {
        // A closed standard error must not change the exit code.
        let _ = writeln!(io::stderr(), "the span of the call was not sent: {reason}");
    }
    answer
}

async fn ask(peer: &Peer, request: Request<RateLimitRequest>) -> Result<RateLimitResponse, Status> {
    let noise = OverheadBytes::beside(ANSWER);
    let mut caller = peer
        .connect(None, noise)
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let end = caller.end();
    let mut client = Grpc::with_origin(caller, peer.origin()).max_decoding_message_size(ANSWER);
    let answer = async {
        client
            .ready()
            .await
            .map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        client
            .unary(request, PathAndQuery::from_static(METHOD), codec)
            .await
    };
    let late = |_| Status::deadline_exceeded(format!("no answer within {} s", PATIENCE.as_secs()));
    match timeout(PATIENCE, answer).await.map_err(late)? {
        Ok(response) => Ok(response.into_inner()),
        // The status of a server's answer has no cause on this side.
        Err(status) if status.source().is_none() => Err(status),
        Err(status) => Err(broken(&status, end).await),
    }
}

/// The reason for a missing answer: the end of the connection if it is known, otherwise the error
/// of the call.
async fn broken(status: &Status, end: Option<End>) -> Status {
    let reason = match end {
        Some(end) => end.reason().await,
        None => None,
    };
    Status::unavailable(reason.unwrap_or_else(|| failure(status)))
}

/// Name of a status code as Go's gRPC prints it.
fn go_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}
