//! Formats messages as protobuf text on one line, cut at a bound, for traces.

use std::fmt::{self, Write};

use super::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    DescriptorStatus, RateLimit,
};
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

/// Maximum of bytes of a text. A request of Envoy takes a few hundred.
const MOST: usize = 4 * 1024;
/// The end of a text that was cut.
const REST: &str = "...";

/// Formats a request.
pub(super) fn request(message: &RateLimitRequest) -> String {
    bounded(|text| {
        write!(text, "domain:{}", Quoted(&message.domain))?;
        message
            .descriptors
            .iter()
            .try_for_each(|message| descriptor(text, message))?;
        if message.hits_addend != 0 {
            write!(text, " hits_addend:{}", message.hits_addend)?;
        }
        Ok(())
    })
}

fn descriptor(text: &mut Bounded, message: &RateLimitDescriptor) -> fmt::Result {
    write!(text, " descriptors:{{")?;
    for (at, entry) in message.entries.iter().enumerate() {
        let space = if at == 0 { "" } else { " " };
        write!(
            text,
            "{space}entries:{{key:{} value:{}}}",
            Quoted(&entry.key),
            Quoted(&entry.value)
        )?;
    }
    if let Some(limit) = &message.limit {
        write!(
            text,
            " limit:{{requests_per_unit:{} unit:{}}}",
            limit.requests_per_unit,
            limit.unit().as_str_name()
        )?;
    }
    if let Some(hits) = message.hits_addend {
        write!(text, " hits_addend:{{value:{hits}}}")?;
    }
    if message.is_negative_hits {
        write!(text, " is_negative_hits:true")?;
    }
    write!(text, "}}")
}

/// Formats an answer, without its metadata.
pub(super) fn response(message: &RateLimitResponse) -> String {
    bounded(|text| {
        write!(
            text,
            "overall_code:{}",
            message.overall_code().as_str_name()
        )?;
        message
            .statuses
            .iter()
            .try_for_each(|message| status(text, message))?;
        for header in &message.response_headers_to_add {
            let key = Quoted(&header.key);
            let value = Quoted(&header.value);
            write!(text, " response_headers_to_add:{{key:{key} value:{value}}}")?;
        }
        Ok(())
    })
}

fn status(text: &mut Bounded, message: &DescriptorStatus) -> fmt::Result {
    write!(text, " statuses:{{code:{}", message.code().as_str_name())?;
    if let Some(limit) = &message.current_limit {
        current_limit(text, limit)?;
    }
    if message.limit_remaining != 0 {
        write!(text, " limit_remaining:{}", message.limit_remaining)?;
    }
    if let Some(duration) = &message.duration_until_reset {
        write!(
            text,
            " duration_until_reset:{{seconds:{}}}",
            duration.seconds
        )?;
    }
    write!(text, "}}")
}

fn current_limit(text: &mut Bounded, limit: &RateLimit) -> fmt::Result {
    write!(
        text,
        " current_limit:{{requests_per_unit:{} unit:{}",
        limit.requests_per_unit,
        limit.unit().as_str_name()
    )?;
    if !limit.name.is_empty() {
        write!(text, " name:{}", Quoted(&limit.name))?;
    }
    write!(text, "}}")
}

/// Returns the output of `write`, cut at the bound.
fn bounded(write: impl FnOnce(&mut Bounded) -> fmt::Result) -> String {
    let mut text = Bounded(String::new());
    if write(&mut text).is_err() {
        text.0.push_str(REST);
    }
    text.0
}

/// A text that accepts no more than its bound.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = MOST.saturating_sub(self.0.len() + REST.len());
        if more.len() <= room {
            self.0.push_str(more);
            return Ok(());
        }
        let cut = (0..=room)
            .rev()
            .find(|at| more.is_char_boundary(*at))
            .unwrap_or(0);
        self.0.push_str(&more[..cut]);
        Err(fmt::Error)
    }
}

/// A text between quotation marks, without control characters.
struct Quoted<'t>(&'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                letter if letter.is_control() => write!(f, "\\x{:02x}", u32::from(letter))?,
                letter => f.write_char(letter)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
    use super::*;

    fn with_value(value: &str) -> RateLimitRequest {
        let entry = Entry {
            key: "user".to_owned(),
            value: value.to_owned(),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry],
            ..RateLimitDescriptor::default()
        };
        RateLimitRequest {
            domain: "shop".to_owned(),
            descriptors: vec![descriptor],
            hits_addend: 2,
        }
    }

    #[test]
    fn requests_are_shown_as_protobuf_text() {
        let expected = r#"domain:"shop" descriptors:{entries:{key:"user" value:"a\"\n\x01\\é"}} hits_addend:2"#;
        assert_eq!(request(&with_value("a\"\n\u{1}\\é")), expected);
    }

    #[test]
    fn a_long_text_is_cut() {
        let text = request(&with_value(&"é".repeat(100_000)));
        assert!(
            text.len() <= MOST && text.len() > MOST - 8 && text.ends_with("é..."),
            "{}",
            text.len()
        );
    }
}
