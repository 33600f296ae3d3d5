//! Id of a request, which its answer and the log share.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// Header with which a client sends its id. Every answer has it.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id that is accepted of a client: every answer and log line repeats it.
const LONGEST: usize = 128;

/// Id of 1 to 128 visible ASCII characters.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the id that the client sent, or a new one if the client sent no valid id.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let sent = headers
            .get(HEADER)
            .filter(|value| is_usable(value.as_bytes()));
        Self(sent.cloned().unwrap_or_else(random))
    }

    pub(crate) fn text(&self) -> &str {
        self.0.to_str().expect("it is visible ASCII")
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

fn is_usable(value: &[u8]) -> bool {
    (1..=LONGEST).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
}

/// 64 random bits: enough to be unique among the requests of a log.
fn random() -> HeaderValue {
    HeaderValue::from_str(&format!("{:016x}", fastrand::u64(..)))
        .expect("hexadecimal digits are visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_from_the_client_if_it_can_be_used() {
        let longest = "x".repeat(LONGEST);
        for sent in ["a", "7f3c-11", "order/17;try=2", &longest] {
            let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_str(sent).unwrap())]);
            assert_eq!(RequestId::of(&headers).text(), sent);
        }
        for sent in ["", "a b", "\u{e9}", &format!("{longest}x")] {
            let headers =
                HeaderMap::from_iter([(HEADER, HeaderValue::from_bytes(sent.as_bytes()).unwrap())]);
            let made = RequestId::of(&headers);
            assert!(made.text().len() == 16 && made.text() != sent, "{made:?}");
        }
        assert_ne!(
            RequestId::of(&HeaderMap::new()).text(),
            RequestId::of(&HeaderMap::new()).text()
        );
    }
}
