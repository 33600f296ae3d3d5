//! `ratelimit_client`: sends one request to a rate limit service.

use std::error::Error as _;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::flags::{Flag, FlagKind, FlagValues};
use super::{EXIT_FAILURE, EXIT_USAGE, ToolFailure, fail_with, print_line};
use crate::net::dial::{ConnectionEnd, OverheadBytes, call_failure};
use crate::rls::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor::Entry,
};
use crate::rls::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::rls::text::{self, dynamic, quoted};
use crate::settings::TraceSettings;
use crate::settings::{GrpcPeer, host_and_port};
use crate::supervise::runtime::current_thread_runtime;
use crate::telemetry::traces::OneCall;
use crate::tls::{CertificateAndKey, NamedFile, PeerTls};

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Timeout of the call. The reference waits without limit.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Size limit of an answer in bytes, the default of gRPC clients.
const MAX_ANSWER_BYTES: usize = 4 << 20;

const DESCRIPTORS: &str = "descriptors";
const DIAL_STRING: &str = "dial_string";
const DOMAIN: &str = "domain";
const CERTIFICATE: &str = "grpc-cert-file";
const KEY: &str = "grpc-key-file";
const AUTHORITY: &str = "grpc-server-ca-file";
const USE_TLS: &str = "grpc-use-tls";
const SPAN_PROTOCOL: &str = "oltp-protocol";

/// In alphabetical order, in which they are printed.
pub(super) const FLAGS: [Flag; 8] = [
    flag_with_default(
        DESCRIPTORS,
        FlagKind::List(check),
        "",
        "a descriptor, as <key>=<value>,<key>=<value>,..; may be given several times",
    ),
    flag_with_default(
        DIAL_STRING,
        FlagKind::Text,
        "localhost:8081",
        "the service, as <host>:<port>",
    ),
    flag_with_default(DOMAIN, FlagKind::Text, "", "the domain to ask for"),
    flag_with_default(
        CERTIFICATE,
        FlagKind::Text,
        "",
        "a file with the certificate that is shown to the service",
    ),
    flag_with_default(
        KEY,
        FlagKind::Text,
        "",
        "a file with the key of that certificate",
    ),
    flag_with_default(
        AUTHORITY,
        FlagKind::Text,
        "",
        "a file with authorities that are trusted in addition to the system's",
    ),
    flag_with_default(USE_TLS, FlagKind::Switch, "false", "use TLS to the service"),
    flag_with_default(
        SPAN_PROTOCOL,
        FlagKind::Text,
        "",
        "http or grpc: sends a span of the call to the collector of OTEL_EXPORTER_OTLP_ENDPOINT",
    ),
];

const fn flag_with_default(
    name: &'static str,
    kind: FlagKind,
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
pub(super) fn run(flag_values: &FlagValues) -> Result<(), ToolFailure> {
    print_flags(flag_values)?;
    let spans = flag_values.text(&FLAGS, SPAN_PROTOCOL);
    if !matches!(spans, "" | "http" | "grpc") {
        print_line(&format!("Invalid otlptrace client protocol: {spans}"))?;
        return Err(ToolFailure(EXIT_USAGE));
    }
    let peer = peer(flag_values).or_else(connect_failure)?;
    let traces = match spans {
        "" => None,
        protocol => Some(TraceSettings::for_client(protocol).or_else(connect_failure)?),
    };
    let work = async {
        match &traces {
            None => send_request(&peer, Request::new(request(flag_values))).await,
            Some(traces) => send_traced_request(&peer, request(flag_values), traces).await,
        }
    };
    let runtime = current_thread_runtime().map_err(|_| ToolFailure(EXIT_FAILURE))?;
    match runtime.block_on(work) {
        Ok(response) => print_line(&format!("response: {}", text::whole(&dynamic(&response)))),
        Err(status) => {
            let code = go_name(status.code());
            let text = status.message();
            fail_with(&format!(
                "request error: rpc error: code = {code} desc = {text}"
            ))
        }
    }
}

/// Prints the value of each flag.
fn print_flags(flag_values: &FlagValues) -> Result<(), ToolFailure> {
    for flag in &FLAGS {
        let value = match flag.name {
            DESCRIPTORS => flag_values
                .all(DESCRIPTORS)
                .filter_map(entries)
                .map(|entries| descriptor_text(&entries))
                .collect(),
            name => flag_values.text(&FLAGS, name).to_owned(),
        };
        print_line(&format!("Flag: --{}={}", flag.name, quoted(&value)))?;
    }
    Ok(())
}

fn connect_failure<T>(reason: impl Display) -> Result<T, ToolFailure> {
    fail_with(&format!("error connecting: {reason}"))
}

/// A descriptor in the format of the reference.
fn descriptor_text(entries: &[Entry]) -> String {
    let entry = |Entry { key, value }: &Entry| format!(" <key={key}, value={value}> ");
    format!("[{}] ", entries.iter().map(entry).collect::<String>())
}

fn request(flag_values: &FlagValues) -> RateLimitRequest {
    let descriptor = |entries| RateLimitDescriptor {
        entries,
        ..RateLimitDescriptor::default()
    };
    let descriptors = flag_values
        .all(DESCRIPTORS)
        .filter_map(entries)
        .map(descriptor)
        .collect();
    RateLimitRequest {
        domain: flag_values.text(&FLAGS, DOMAIN).to_owned(),
        descriptors,
        hits_addend: 1,
    }
}

fn peer(flag_values: &FlagValues) -> Result<GrpcPeer, String> {
    let address = flag_values.text(&FLAGS, DIAL_STRING);
    let (host, port) = host_and_port(address)
        .ok_or_else(|| format!("-{DIAL_STRING}={address}: expected host:port"))?;
    let tls = if flag_values.is_on(&FLAGS, USE_TLS) {
        Some(peer_tls(flag_values)?)
    } else {
        None
    };
    Ok(GrpcPeer { host, port, tls })
}

/// The TLS settings of the flags, if their files can be used.
fn peer_tls(flag_values: &FlagValues) -> Result<PeerTls, String> {
    let file = |variable: &'static str| {
        let path = flag_values.text(&FLAGS, variable);
        (!path.is_empty()).then(|| NamedFile {
            variable,
            path: path.into(),
        })
    };
    let pair = file(CERTIFICATE)
        .zip(file(KEY))
        .map(|(chain, key)| CertificateAndKey { chain, key });
    let tls = PeerTls {
        authorities: file(AUTHORITY),
        pair,
        name: None,
        protocol: b"h2",
    };
    tls.load().map_err(|flaws| {
        let flaws: Vec<_> = flaws.iter().map(|flaw| format!("-{flaw}")).collect();
        flaws.join("; ")
    })?;
    Ok(tls)
}

/// Sends the request like [`send_request`], and exports a span of the call afterwards. A failed
/// export does not change the exit code.
async fn send_traced_request(
    peer: &GrpcPeer,
    request: RateLimitRequest,
    traces: &TraceSettings,
) -> Result<RateLimitResponse, Status> {
    let call = OneCall::begin(METHOD.trim_start_matches('/'));
    let mut request = Request::new(request);
    if let Ok(parent) = call.traceparent().parse() {
        request.metadata_mut().insert("traceparent", parent);
    }
    let answer = send_request(peer, request).await;
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

async fn send_request(
    peer: &GrpcPeer,
    request: Request<RateLimitRequest>,
) -> Result<RateLimitResponse, Status> {
    let overhead = OverheadBytes::for_max_message(MAX_ANSWER_BYTES);
    let mut channel = peer.connect(None, overhead).await.map_err(unavailable)?;
    let end = channel.take_end();
    let mut client =
        Grpc::with_origin(channel, peer.origin()).max_decoding_message_size(MAX_ANSWER_BYTES);
    let answer = async {
        client.ready().await.map_err(unavailable)?;
        let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
        client
            .unary(request, PathAndQuery::from_static(METHOD), codec)
            .await
    };
    let late =
        |_| Status::deadline_exceeded(format!("no answer within {} s", CALL_TIMEOUT.as_secs()));
    match timeout(CALL_TIMEOUT, answer).await.map_err(late)? {
        Ok(response) => Ok(response.into_inner()),
        // The status of a server's answer has no cause on this side.
        Err(status) if status.source().is_none() => Err(status),
        Err(status) => Err(connection_error(&status, end).await),
    }
}

fn unavailable(error: impl Display) -> Status {
    Status::unavailable(error.to_string())
}

/// The reason for a missing answer: the end of the connection if it is known, otherwise the error
/// of the call.
async fn connection_error(status: &Status, end: Option<ConnectionEnd>) -> Status {
    let reason = match end {
        Some(end) => end.failure_reason().await,
        None => None,
    };
    Status::unavailable(reason.unwrap_or_else(|| call_failure(status)))
}

/// Name of a status code as Go's gRPC prints it.
fn go_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}
