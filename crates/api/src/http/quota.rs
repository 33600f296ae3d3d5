//! Quotas for what callers hold: memory of large answers until they are sent, and event streams.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::problem::{Code, Problem};

use crate::http::lock;

/// Largest answer that needs no quota: the number of connections bounds those.
pub(crate) const MAX_UNRESERVED_BYTES: usize = 256 * 1024;
/// Bytes of large answers in all: four of the largest.
pub(crate) const ANSWER_QUOTA_BYTES: usize = 256 * 1024 * 1024;
/// Time for which a large answer waits for quota. Clients that do not read are cut off soon after
/// it.
pub(crate) const QUOTA_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which an answer with leased jobs waits for quota. Other workers could have these jobs,
/// and a lease may last 5 s.
const LEASED_QUOTA_TIMEOUT: Duration = Duration::from_secs(2);

/// Address of the client of a connection. The server that embeds the API sets it as an extension of
/// each request.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// Caller that a quota counts for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Caller {
    /// Name of a token.
    Token(String),
    /// Address of the client, if no tokens are needed.
    Peer(Option<IpAddr>),
}

/// Capacity that callers share. One caller has at most a part of it.
#[derive(Debug)]
pub(crate) struct Quota {
    resource: &'static str,
    capacity: usize,
    max_per_caller: usize,
    used: Mutex<HashMap<Caller, usize>>,
    freed: Notify,
}

/// Reserved part of a quota. Dropping it releases the part.
#[derive(Debug)]
pub(crate) struct QuotaGuard {
    quota: Arc<Quota>,
    caller: Caller,
    size: usize,
}

impl Quota {
    /// Makes a quota. `resource` names the resource in the problem of a refusal.
    pub(crate) fn new(resource: &'static str, capacity: usize, max_per_caller: usize) -> Arc<Self> {
        Arc::new(Self {
            resource,
            capacity,
            max_per_caller,
            used: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Reserves `size` now.
    ///
    /// # Errors
    /// Others hold too much, or the caller does.
    pub(crate) fn try_reserve(
        self: &Arc<Self>,
        caller: &Caller,
        size: usize,
    ) -> Result<QuotaGuard, Problem> {
        let mut taken = self.lock();
        let caller_size = self.check_caller(&taken, caller, size)?;
        let all: usize = taken.values().sum();
        if all + size > self.capacity {
            return Err(self.exhausted("all callers have", all, self.capacity));
        }
        taken.insert(caller.clone(), caller_size + size);
        Ok(QuotaGuard {
            quota: self.clone(),
            caller: caller.clone(),
            size,
        })
    }

    /// Reserves `size` as soon as others release it. A caller over its own maximum does not wait,
    /// because a waiting request may hold up others.
    ///
    /// # Errors
    /// The quota was not free in time, or the caller has too much.
    pub(crate) async fn reserve_or_wait(
        self: &Arc<Self>,
        caller: &Caller,
        size: usize,
    ) -> Result<QuotaGuard, Problem> {
        self.check_caller(&self.lock(), caller, size)?;
        self.reserve_within(QUOTA_TIMEOUT, caller, size).await
    }

    /// Reserves `size` within a time. It also waits for the caller's own part: no other request
    /// waits for this one.
    async fn reserve_within(
        self: &Arc<Self>,
        wait_limit: Duration,
        caller: &Caller,
        size: usize,
    ) -> Result<QuotaGuard, Problem> {
        let acquired = async {
            loop {
                // The listener is made before the try, so that no release falls between.
                let freed = self.freed.notified();
                if let Ok(guard) = self.try_reserve(caller, size) {
                    return guard;
                }
                freed.await;
            }
        };
        match timeout(wait_limit, acquired).await {
            Ok(guard) => Ok(guard),
            Err(_) => self.try_reserve(caller, size),
        }
    }

    /// Reserves `size` even beyond the capacity: the answer to a finished action must be sent.
    pub(crate) fn reserve_over_capacity(
        self: &Arc<Self>,
        caller: &Caller,
        size: usize,
    ) -> QuotaGuard {
        *self.lock().entry(caller.clone()).or_default() += size;
        QuotaGuard {
            quota: self.clone(),
            caller: caller.clone(),
            size,
        }
    }

    /// Returns the size that the caller holds, if it may have `size` more.
    fn check_caller(
        &self,
        taken: &HashMap<Caller, usize>,
        caller: &Caller,
        size: usize,
    ) -> Result<usize, Problem> {
        let caller_size = taken.get(caller).copied().unwrap_or_default();
        if caller_size + size <= self.max_per_caller {
            return Ok(caller_size);
        }
        let advice = "all that one caller may have: the server has room for others, so end some of these first";
        Err(self.exhausted(
            "this caller has",
            caller_size,
            format_args!("{}, {advice}", self.max_per_caller),
        ))
    }

    fn exhausted(&self, holder: &str, taken: usize, max: impl Display) -> Problem {
        Problem::new(
            Code::Overloaded,
            format!("too many {}: {holder} {taken} of {max}", self.resource),
        )
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Caller, usize>> {
        lock(&self.used)
    }
}

impl QuotaGuard {
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Changes the reserved size, even beyond the capacity: the answer turned out larger or
    /// smaller.
    fn resize(&mut self, size: usize) {
        let mut taken = self.quota.lock();
        let caller_size = taken.remove(&self.caller).unwrap_or_default() + size - self.size;
        if caller_size > 0 {
            taken.insert(self.caller.clone(), caller_size);
        }
        drop(taken);
        self.size = size;
        self.quota.freed.notify_waiters();
    }
}

impl Drop for QuotaGuard {
    fn drop(&mut self) {
        self.resize(0);
    }
}

/// Text on its way to its reader, with its quota.
struct ReservedText {
    text: Bytes,
    _guard: Arc<QuotaGuard>,
}

impl AsRef<[u8]> for ReservedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Marks an answer that has its quota already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserved;

/// Reserves quota for a text until its reader has it.
///
/// # Errors
/// There was no quota for it in time.
pub(crate) async fn reserve_text(
    quota: &Arc<Quota>,
    caller: &Caller,
    text: Vec<u8>,
) -> Result<Bytes, Problem> {
    let text = Bytes::from(text);
    if text.len() <= MAX_UNRESERVED_BYTES {
        return Ok(text);
    }
    let guard = quota.reserve_or_wait(caller, text.len()).await?;
    Ok(attach_guard(text, Arc::new(guard)))
}

/// Ties a quota guard to a text until its reader has it.
pub(crate) fn attach_guard(text: Bytes, guard: Arc<QuotaGuard>) -> Bytes {
    Bytes::from_owner(ReservedText {
        text,
        _guard: guard,
    })
}

/// Reserves quota for an answer of at most `size` bytes that is about to be built. `None` if it is
/// small.
///
/// # Errors
/// There was no quota for it in time.
pub(crate) async fn reserve(
    quota: &Arc<Quota>,
    caller: &Caller,
    size: usize,
) -> Result<Option<QuotaGuard>, Problem> {
    if size <= MAX_UNRESERVED_BYTES {
        return Ok(None);
    }
    quota
        .reserve_within(LEASED_QUOTA_TIMEOUT, caller, size)
        .await
        .map(Some)
}

/// Answers with JSON that has its quota already.
pub(crate) fn reserved_json(mut text: Vec<u8>, mut guard: QuotaGuard) -> Response {
    text.shrink_to_fit();
    guard.resize(text.len());
    reserved_answer(
        "application/json",
        attach_guard(text.into(), Arc::new(guard)),
    )
}

/// Answers with a text that has its quota already.
pub(crate) fn reserved_answer(media_type: &'static str, text: Bytes) -> Response {
    (
        Extension(Reserved),
        [(header::CONTENT_TYPE, media_type)],
        text,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_caller_leaves_room_for_others() {
        let room = Quota::new("tests", 3, 2);
        let [one, two] = ["one", "two"].map(|name| Caller::Token(name.to_owned()));
        let first = room.try_reserve(&one, 2).unwrap();
        let expected = "too many tests: this caller has 2 of 2, all that one caller may have: the server has room for others";
        assert!(
            room.try_reserve(&one, 1)
                .unwrap_err()
                .detail()
                .starts_with(expected)
        );
        let second = room.try_reserve(&two, 1).unwrap();
        assert_eq!(
            room.try_reserve(&two, 1).unwrap_err().detail(),
            "too many tests: all callers have 3 of 3"
        );
        assert!(room.reserve_or_wait(&one, 1).await.is_err(), "at once");
        let forced = room.reserve_over_capacity(&one, 5);
        assert!(room.try_reserve(&one, 1).is_err() && room.try_reserve(&two, 1).is_err());
        drop(forced);
        let (third, ()) = tokio::join!(room.reserve_or_wait(&two, 1), async { drop(first) });
        drop((second, third));
        assert!(room.lock().is_empty());
    }

    #[tokio::test]
    async fn an_answer_waits_for_its_room_and_gives_back_what_it_did_not_need() {
        let room = Quota::new("tests", 4 * MAX_UNRESERVED_BYTES, 2 * MAX_UNRESERVED_BYTES);
        let one = Caller::Token("one".to_owned());
        assert!(
            reserve(&room, &one, MAX_UNRESERVED_BYTES)
                .await
                .unwrap()
                .is_none(),
            "it is small"
        );
        let first = reserve(&room, &one, 2 * MAX_UNRESERVED_BYTES)
            .await
            .unwrap()
            .unwrap();
        let refused = room
            .reserve_within(Duration::ZERO, &one, MAX_UNRESERVED_BYTES + 1)
            .await
            .unwrap_err();
        assert!(
            refused
                .detail()
                .starts_with("too many tests: this caller has"),
            "{}",
            refused.detail()
        );
        let (second, answer) =
            tokio::join!(reserve(&room, &one, 2 * MAX_UNRESERVED_BYTES - 3), async {
                reserved_json(vec![b' '; 3], first)
            });
        assert_eq!(room.lock()[&one], 2 * MAX_UNRESERVED_BYTES);
        drop((second, answer));
        assert!(room.lock().is_empty());
    }
}
