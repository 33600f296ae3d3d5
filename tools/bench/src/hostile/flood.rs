//! Floods of keys, and whether limits that others have used up are still enforced after them.

use std::io;
use std::time::Duration;

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

use super::calls::Caller;
use super::frames;
use super::target::Target;

/// The most descriptors of a request by default.
const EACH: usize = 1_000;
/// The limit of 5 a minute whose keys are used up, and its hits.
const GUARDED: (&str, u32) = ("minute", 5);
/// Seconds that the minute must still have at the start: a new one allows everything again.
const ROOM: i64 = 20;

/// Uses up a thousand limits, sends a million keys of the limit `key`, and sees how many of the thousand still refuse.
pub(super) async fn keys(target: &Target, key: &'static str) -> io::Result<()> {
    let mut caller = Caller::connect(target.grpc).await?;
    new_minute().await;
    let (guarded, hits) = GUARDED;
    over_limit(&mut caller, guarded, "guarded", 0, hits).await?;
    for batch in 0..target.number(1_000) {
        let told = caller.call(request(key, "flood", batch, 1)).await?;
        target.gains.answered(told.status, told.took);
    }
    let enforced = over_limit(&mut caller, guarded, "guarded", 0, 1).await?;
    target.gains.enforced(enforced as f64 / EACH as f64);
    Ok(())
}

/// Waits until the minute has time left.
async fn new_minute() {
    let seconds = clock_gettime(ClockId::Realtime).tv_sec % 60;
    if seconds > 60 - ROOM {
        sleep(Duration::from_secs((60 - seconds).unsigned_abs())).await;
    }
}

/// The descriptors of one request over a thousand keys.
pub(super) fn request(key: &'static str, who: &str, batch: usize, hits: u32) -> bytes::Bytes {
    let first = batch * EACH;
    let descriptors = (first..first + EACH).map(|number| (key, format!("{who}-{number}")));
    frames::message(false, &frames::request("hostile", descriptors, hits)).into()
}

/// Sends hits to a thousand keys, and counts those that are over their limit.
async fn over_limit(
    caller: &mut Caller,
    key: &'static str,
    who: &str,
    batch: usize,
    hits: u32,
) -> io::Result<usize> {
    let told = caller.call(request(key, who, batch, hits)).await?;
    if told.status != "OK" {
        return Err(io::Error::other(format!(
            "the limits were not asked: {}",
            told.status
        )));
    }
    Ok(statuses_over_limit(
        told.message.get(5..).unwrap_or_default(),
    ))
}

/// How many statuses of a RateLimitResponse say OVER_LIMIT.
fn statuses_over_limit(mut message: &[u8]) -> usize {
    const STATUSES: u32 = 2;
    /// The field `code`, OVER_LIMIT: the first of a status.
    const OVER_LIMIT: &[u8] = &[1 << 3, 2];
    let mut over = 0;
    while let Ok((field, wire_type)) = decode_key(&mut message) {
        if field == STATUSES && wire_type == WireType::LengthDelimited {
            let length = decode_varint(&mut message).unwrap_or(0) as usize;
            let Some((status, rest)) = message.split_at_checked(length) else {
                break;
            };
            over += usize::from(status.starts_with(OVER_LIMIT));
            message = rest;
        } else if skip_field(wire_type, field, &mut message, DecodeContext::default()).is_err() {
            break;
        }
    }
    over
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_over_their_limit_are_counted() {
        let message = b"\x08\x02\x12\x02\x08\x02\x12\x04\x08\x01\x18\x01\x12\x04\x08\x02\x18\x01";
        assert_eq!(statuses_over_limit(message), 2);
        assert_eq!(statuses_over_limit(b""), 0);
        assert_eq!(statuses_over_limit(b"\x12\x7f\x08"), 0);
    }
}
