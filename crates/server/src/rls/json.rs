//! Serves `/json`: a request as protobuf JSON. The status code of the answer says whether it is
//! allowed.

mod request;

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use hyper::body::Body as _;
use serde::Serialize as _;

use super::call::Calls;
use super::cores::Cores;
use super::proto::envoy::service::ratelimit::v3::RateLimitResponse;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use super::text::{self, dynamic};
use crate::supervise::health::Health;
use crate::telemetry::traces::{AttributeValue, SpanPart, Trace};

/// The largest body of a request, as for gRPC.
const MAX_BODY: usize = 4 * 1024 * 1024;

/// Serves `/json` and `/healthcheck`. Other paths are answered with 404 and the text of the
/// reference.
///
/// Connections are served on the control thread, which only reads and writes HTTP. The slow part,
/// JSON and the decision, runs on a core. So health is answered however many calls of `/json` wait.
pub(crate) fn router(cores: Cores, health: Health) -> Router {
    let healthcheck = any(async move || match health.report() {
        Ok(report) => (StatusCode::OK, report),
        Err(reasons) => (StatusCode::INTERNAL_SERVER_ERROR, reasons),
    });
    let json = Router::new().route("/json", any(answer)).with_state(cores);
    let absent = any(async || plain(StatusCode::NOT_FOUND, "404 page not found\n"));
    json.route("/healthcheck", healthcheck).fallback(absent)
}

async fn answer(State(cores): State<Cores>, headers: HeaderMap, body: Body) -> Response {
    if headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|encoding| encoding != "identity")
    {
        return plain(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "send the body without Content-Encoding: it is not decoded\n",
        );
    }
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let answer = cores.run(|calls| traced(calls, headers, body)).await;
    answer.unwrap_or_else(|| plain(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error\n"))
}

/// Reads the body into one buffer. A body in single bytes would take forty times its length if its
/// frames were kept.
///
/// # Errors
/// The answer with the reason why the body did not arrive. envoyproxy/ratelimit has no such bounds,
/// so there is no answer to match.
async fn read_body(mut body: Body) -> Result<Vec<u8>, Response> {
    let mut kept = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(bytes) = frame
            .map_err(|error| body_error_answer(&error))?
            .into_data()
        else {
            continue;
        };
        if bytes.len() > MAX_BODY - kept.len() {
            return Err(plain(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body has more than {MAX_BODY} bytes\n"),
            ));
        }
        kept.extend_from_slice(&bytes);
    }
    Ok(kept)
}

fn body_error_answer(error: &axum::Error) -> Response {
    let causes = std::iter::successors(Some(error as &dyn Error), |error| (*error).source());
    let refusal = causes
        .into_iter()
        .find_map(|error| error.downcast_ref::<io::Error>());
    match refusal.map(|refusal| (refusal.kind(), refusal.to_string() + "\n")) {
        Some((io::ErrorKind::TimedOut, text)) => plain(StatusCode::REQUEST_TIMEOUT, text),
        Some((io::ErrorKind::QuotaExceeded, text)) => plain(StatusCode::SERVICE_UNAVAILABLE, text),
        _ => plain(StatusCode::BAD_REQUEST, "Bad Request\n"),
    }
}

/// Decides, with a trace if the call is sampled.
async fn traced(calls: Calls, headers: HeaderMap, body: Vec<u8>) -> Response {
    let trace = calls
        .traces()
        .and_then(|traces| traces.begin("/json", &headers));
    drop(headers);
    let Some(mut trace) = trace else {
        return decide(calls, body, None).await;
    };
    let answer = decide(calls, body, Some(&mut trace)).await;
    trace.http_ended(answer.status().as_u16());
    answer
}

async fn decide(calls: Calls, body: Vec<u8>, mut trace: Option<&mut Trace>) -> Response {
    let started = Instant::now();
    if let Err(excess) = calls.bounds().check_json(&body) {
        return plain(StatusCode::BAD_REQUEST, calls.refuse(excess) + "\n");
    }
    let Some(request) = request::parse(&body) else {
        return plain(StatusCode::BAD_REQUEST, "Bad Request\n");
    };
    let _counted = calls.metrics().time_json(started);
    // HTTP has no deadline of the client, so the server's applies.
    let answer = calls
        .decide(request, started, None, trace.as_deref_mut())
        .await;
    let Ok(response) = answer else {
        return plain(StatusCode::BAD_REQUEST, "Bad Request\n");
    };
    let begun = Instant::now();
    let answer = answer_of(&response);
    if let Some(trace) = trace {
        let span = answer_span(trace, begun, &response);
        trace.add(span);
    }
    answer
}

/// The span of the work after the decision.
fn answer_span(trace: &Trace, begun: Instant, response: &RateLimitResponse) -> SpanPart {
    SpanPart {
        name: "NewJsonHandler Remaining Execution",
        id: Trace::new_id(),
        parent: trace.call_span(),
        begun,
        attributes: vec![("response", AttributeValue::Text(text::response(response)))],
    }
}

fn answer_of(response: &RateLimitResponse) -> Response {
    let status = match response.overall_code() {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    };
    match encode(response) {
        Some(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        None => plain(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error\n"),
    }
}

fn encode(response: &RateLimitResponse) -> Option<Vec<u8>> {
    let mut json = serde_json::Serializer::with_formatter(Vec::new(), WholeNumbers);
    dynamic(response).serialize(&mut json).ok()?;
    Some(json.into_inner())
}

/// Writes whole numbers like Go: 4, where serde_json writes 4.0. Both are the same number in JSON.
struct WholeNumbers;

impl serde_json::ser::Formatter for WholeNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, number: f64) -> io::Result<()> {
        // Above 2^53, not every whole number is representable.
        if number.fract() == 0.0 && number.abs() < 9e15 {
            write!(writer, "{}", number as i64)
        } else {
            serde_json::ser::CompactFormatter.write_f64(writer, number)
        }
    }
}

fn plain(status: StatusCode, text: impl IntoResponse) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, text).into_response()
}
