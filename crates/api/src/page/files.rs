//! The files of the page, as `ui/` was bundled: a build needs no Node.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::edge::ask::{Answer, Ask};
use crate::edge::problem::{Code, Problem};

/// The page loads and runs its own files and nothing else, and stands in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    worker-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

struct File {
    name: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

/// The first is the page, the others are what it loads.
#[rustfmt::skip] // a line for each
static FILES: [File; 5] = [
    File { name: "", media: "text/html; charset=utf-8", bytes: include_bytes!("../../../../ui/dist/index.html") },
    File { name: "app.js", media: "text/javascript; charset=utf-8", bytes: include_bytes!("../../../../ui/dist/app.js") },
    File { name: "app.css", media: "text/css; charset=utf-8", bytes: include_bytes!("../../../../ui/dist/app.css") },
    File { name: "live.js", media: "text/javascript; charset=utf-8", bytes: include_bytes!("../../../../ui/dist/live.js") },
    File { name: "icon.svg", media: "image/svg+xml", bytes: include_bytes!("../../../../ui/dist/icon.svg") },
];

pub(crate) fn page(ask: &Ask<'_>) -> Response {
    FILES[0].answer(ask.headers)
}

pub(crate) fn asset(ask: &Ask<'_>) -> Answer {
    let name = ask.matched.name(0)?;
    let file = FILES[1..].iter().find(|file| file.name == name);
    let file = file.ok_or_else(|| Problem::new(Code::NotFound, "the page has no such file"))?;
    Ok(file.answer(ask.headers))
}

impl File {
    /// The file; or that it has not changed, to a browser that keeps it. It asks each time, so that a new server has a new page at once.
    fn answer(&self, headers: &HeaderMap) -> Response {
        let tag = self.tag();
        let about = [
            (header::CONTENT_TYPE, self.media),
            (header::CACHE_CONTROL, "no-cache"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::ETAG, &tag),
        ];
        if headers.get_all(header::IF_NONE_MATCH).iter().any(|known| known == tag.as_str()) {
            return (StatusCode::NOT_MODIFIED, about).into_response();
        }
        (about, self.bytes).into_response()
    }

    fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.bytes.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }
}
