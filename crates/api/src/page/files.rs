//! Files of the page, as `ui/` was bundled: a build needs no Node.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::sync::OnceLock;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::http::problem::{Code, Problem};
use crate::state::app_state::{HandlerResult, RequestContext};

/// Content security policy of the page: it loads and runs its own files only, and no frame shows
/// it.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    worker-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

struct PageFile {
    name: &'static str,
    media: &'static str,
    bytes: &'static [u8],
    /// Compressed bytes, made for the first request.
    compressed: OnceLock<Vec<u8>>,
}

/// The first file is the page, the others are its assets.
#[rustfmt::skip] // a line for each
static FILES: [PageFile; 6] = [
    PageFile::new("", "text/html; charset=utf-8", include_bytes!("../../../../ui/dist/index.html")),
    PageFile::new("app.js", "text/javascript; charset=utf-8", include_bytes!("../../../../ui/dist/app.js")),
    PageFile::new("app.css", "text/css; charset=utf-8", include_bytes!("../../../../ui/dist/app.css")),
    PageFile::new("live.js", "text/javascript; charset=utf-8", include_bytes!("../../../../ui/dist/live.js")),
    PageFile::new("licenses.txt", "text/plain; charset=utf-8", include_bytes!("../../../../ui/dist/licenses.txt")),
    PageFile::new("icon.svg", "image/svg+xml", include_bytes!("../../../../ui/dist/icon.svg")),
];

pub(crate) async fn page(request: &RequestContext<'_>) -> HandlerResult {
    Ok(FILES[0].answer(request.headers))
}

pub(crate) async fn asset(request: &RequestContext<'_>) -> HandlerResult {
    let name = request.matched.name(0)?;
    let file = FILES[1..].iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| Problem::new(Code::NotFound, "the page has no such file"))?;
    Ok(file.answer(request.headers))
}

impl PageFile {
    const fn new(name: &'static str, media: &'static str, bytes: &'static [u8]) -> Self {
        Self {
            name,
            media,
            bytes,
            compressed: OnceLock::new(),
        }
    }

    /// Answers with the file, or with 304 if the browser has it. The browser asks each time, so
    /// that a new server shows its new page at once.
    fn answer(&'static self, headers: &HeaderMap) -> Response {
        let bytes = if accepts_gzip(headers) {
            self.compressed()
        } else {
            self.bytes
        };
        let tag = etag(bytes);
        let about = [
            (header::CONTENT_TYPE, self.media),
            (header::CACHE_CONTROL, "no-cache"),
            (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::VARY, "accept-encoding"),
            (header::ETAG, &tag),
        ];
        if headers
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .any(|known| known == tag.as_str())
        {
            return (StatusCode::NOT_MODIFIED, about).into_response();
        }
        let encoding =
            (bytes.len() < self.bytes.len()).then_some([(header::CONTENT_ENCODING, "gzip")]);
        (about, encoding, bytes).into_response()
    }

    /// Returns the compressed file, or the plain one if compression does not make it smaller.
    fn compressed(&'static self) -> &'static [u8] {
        let compressed = self.compressed.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            let written = encoder
                .write_all(self.bytes)
                .and_then(|()| encoder.finish());
            written.expect("memory takes all bytes")
        });
        if compressed.len() < self.bytes.len() {
            compressed
        } else {
            self.bytes
        }
    }
}

fn etag(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// Whether a client accepts gzip: it names gzip, with a weight other than 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let all = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).any(|part| {
        let (name, weight) = part.split_once(';').unwrap_or((part, ""));
        let refused = weight
            .trim()
            .strip_prefix("q=")
            .is_some_and(|weight| weight.parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}
