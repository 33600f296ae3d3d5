//! Quotas for what callers hold: memory of large answers until they are sent, and event streams.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{Method, header};
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::problem::{Code, Problem};
use super::request::RequestContext;

/// Largest answer that needs no quota: the number of connections bounds those.
pub(crate) const SMALL: usize = 256 * 1024;
/// Bytes of large answers in all: four of the largest.
pub(crate) const LARGE: usize = 256 * 1024 * 1024;
/// Time for which a large answer waits for quota. Clients that do not read are cut off soon after
/// it.
pub(crate) const QUOTA_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which an answer with leased jobs waits for quota. Other workers could have these jobs,
/// and a lease may last 5 s.
const PATIENCE_OF_LEASES: Duration = Duration::from_secs(2);

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
    what: &'static str,
    most: usize,
    most_of_one: usize,
    taken: Mutex<HashMap<Caller, usize>>,
    freed: Notify,
}

/// Reserved part of a quota. Dropping it releases the part.
#[derive(Debug)]
pub(crate) struct QuotaGuard {
    room: Arc<Quota>,
    caller: Caller,
    size: usize,
}

impl Quota {
    /// Makes a quota. `resource` names the resource in the problem of a refusal.
    pub(crate) fn new(what: &'static str, most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self {
            what,
            most,
            most_of_one,
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// Reserves `size` now.
    ///
    /// # Errors
    /// Others hold too much, or the caller does.
    pub(crate) fn take(
        self: &Arc<Self>,
        caller: &Caller,
        size: usize,
    ) -> Result<QuotaGuard, Problem> {
        let mut taken = self.lock();
        let own = self.check_own(&taken, caller, size)?;
        let all: usize = taken.values().sum();
        if all + size > self.most {
            return Err(self.full("all callers have", all, self.most));
        }
        taken.insert(caller.clone(), own + size);
        Ok(QuotaGuard {
            room: self.clone(),
            caller: caller.clone(),
            size,
        })
    }

    /// Reserves `size` as soon as others release it. A caller over its own maximum does not wait,
    /// because a waiting request may hold up others.
    ///
    /// # Errors
    /// The quota was not free in time, or the caller has too much.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        caller: &Caller,
        size: usize,
    ) -> Result<QuotaGuard, Problem> {
        self.check_own(&self.lock(), caller, size)?;
        self.take_within(QUOTA_TIMEOUT, caller, size).await
    }

    /// Reserves `size` within a time. It also waits for the caller's own part: no other request
    /// waits for this one.
    async fn take_within(
        self: &Arc<Self>,
        patience: Duration,
        caller: &Caller,
        size: usize,
    ) -> Result<QuotaGuard, Problem> {
        let waiting = async {
            loop {
                // The listener is made before the try, so that no release falls between.
                let freed = self.freed.notified();
                if let Ok(share) = self.take(caller, size) {
                    return share;
                }
                freed.await;
            }
        };
        match timeout(patience, waiting).await {
            Ok(share) => Ok(share),
            Err(_) => self.take(caller, size),
        }
    }

    /// Reserves `size` even beyond the capacity: the answer to a finished action must be sent.
    fn force(self: &Arc<Self>, caller: &Caller, size: usize) -> QuotaGuard {
        *self.lock().entry(caller.clone()).or_default() += size;
        QuotaGuard {
            room: self.clone(),
            caller: caller.clone(),
            size,
        }
    }

    /// Returns the size that the caller holds, if it may have `size` more.
    fn check_own(
        &self,
        taken: &HashMap<Caller, usize>,
        caller: &Caller,
        size: usize,
    ) -> Result<usize, Problem> {
        let own = taken.get(caller).copied().unwrap_or_default();
        if own + size <= self.most_of_one {
            return Ok(own);
        }
        let advice = "all that one caller may have: the server has room for others, so end some of these first";
        Err(self.full(
            "this caller has",
            own,
            format_args!("{}, {advice}", self.most_of_one),
        ))
    }

    fn full(&self, who: &str, taken: usize, most: impl Display) -> Problem {
        Problem::new(
            Code::Overloaded,
            format!("too many {}: {who} {taken} of {most}", self.what),
        )
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Caller, usize>> {
        // Each change is complete or absent.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuotaGuard {
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Changes the reserved size, even beyond the capacity: the answer turned out larger or
    /// smaller.
    fn resize(&mut self, size: usize) {
        let mut taken = self.room.lock();
        let own = taken.remove(&self.caller).unwrap_or_default() + size - self.size;
        if own > 0 {
            taken.insert(self.caller.clone(), own);
        }
        drop(taken);
        self.size = size;
        self.room.freed.notify_waiters();
    }
}

impl Drop for QuotaGuard {
    fn drop(&mut self) {
        self.resize(0);
    }
}

/// Text on its way to its reader, with its quota.
struct Kept {
    text: Bytes,
    _share: Arc<QuotaGuard>,
}

impl AsRef<[u8]> for Kept {
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
    room: &Arc<Quota>,
    caller: &Caller,
    text: Vec<u8>,
) -> Result<Bytes, Problem> {
    let text = Bytes::from(text);
    if text.len() <= SMALL {
        return Ok(text);
    }
    let share = room.wait(caller, text.len()).await?;
    Ok(hold(text, Arc::new(share)))
}

/// Ties a quota guard to a text until its reader has it.
pub(crate) fn hold(text: Bytes, share: Arc<QuotaGuard>) -> Bytes {
    Bytes::from_owner(Kept {
        text,
        _share: share,
    })
}

/// Reserves quota for an answer of at most `size` bytes that is about to be built. `None` if it is
/// small.
///
/// # Errors
/// There was no quota for it in time.
pub(crate) async fn reserve(
    room: &Arc<Quota>,
    caller: &Caller,
    size: usize,
) -> Result<Option<QuotaGuard>, Problem> {
    if size <= SMALL {
        return Ok(None);
    }
    room.take_within(PATIENCE_OF_LEASES, caller, size)
        .await
        .map(Some)
}

/// Answers with JSON that has its quota already.
pub(crate) fn reserved_json(mut text: Vec<u8>, mut share: QuotaGuard) -> Response {
    text.shrink_to_fit();
    share.resize(text.len());
    let text = hold(Bytes::from(text), Arc::new(share));
    (
        Extension(Reserved),
        [(header::CONTENT_TYPE, "application/json")],
        text,
    )
        .into_response()
}

/// Reserves quota for an answer until its reader has it, if its body is in memory as a whole. An
/// answer to a POST is always sent, even beyond the quota, because the action is done.
///
/// # Errors
/// There is no quota for it now.
pub(crate) async fn keep_answer(
    room: &Arc<Quota>,
    ask: &RequestContext<'_>,
    answer: Response,
) -> Result<Response, Problem> {
    let size = answer
        .body()
        .size_hint()
        .exact()
        .and_then(|size| usize::try_from(size).ok());
    let needs_room =
        |size: &usize| *size > SMALL && answer.extensions().get::<Reserved>().is_none();
    let Some(size) = size.filter(needs_room) else {
        return Ok(answer);
    };
    let caller = ask.caller();
    let share = if ask.matched.route.method == Method::POST {
        room.force(&caller, size)
    } else {
        room.take(&caller, size)?
    };
    let (head, body) = answer.into_parts();
    let text = body
        .collect()
        .await
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))?
        .to_bytes();
    Ok(Response::from_parts(
        head,
        Body::from(hold(text, Arc::new(share))),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_caller_leaves_room_for_others() {
        let room = Quota::new("tests", 3, 2);
        let [one, two] = ["one", "two"].map(|name| Caller::Token(name.to_owned()));
        let first = room.take(&one, 2).unwrap();
        let told = "too many tests: this caller has 2 of 2, all that one caller may have: the server has room for others";
        assert!(room.take(&one, 1).unwrap_err().detail().starts_with(told));
        let second = room.take(&two, 1).unwrap();
        assert_eq!(
            room.take(&two, 1).unwrap_err().detail(),
            "too many tests: all callers have 3 of 3"
        );
        assert!(room.wait(&one, 1).await.is_err(), "at once");
        let forced = room.force(&one, 5);
        assert!(room.take(&one, 1).is_err() && room.take(&two, 1).is_err());
        drop(forced);
        let (third, ()) = tokio::join!(room.wait(&two, 1), async { drop(first) });
        drop((second, third));
        assert!(room.lock().is_empty());
    }

    #[tokio::test]
    async fn an_answer_waits_for_its_room_and_gives_back_what_it_did_not_need() {
        let room = Quota::new("tests", 4 * SMALL, 2 * SMALL);
        let one = Caller::Token("one".to_owned());
        assert!(
            reserve(&room, &one, SMALL).await.unwrap().is_none(),
            "it is small"
        );
        let first = reserve(&room, &one, 2 * SMALL).await.unwrap().unwrap();
        let refused = room
            .take_within(Duration::ZERO, &one, SMALL + 1)
            .await
            .unwrap_err();
        assert!(
            refused
                .detail()
                .starts_with("too many tests: this caller has"),
            "{}",
            refused.detail()
        );
        let (second, answer) = tokio::join!(reserve(&room, &one, 2 * SMALL - 3), async {
            reserved_json(vec![b' '; 3], first)
        });
        assert_eq!(room.lock()[&one], 2 * SMALL);
        drop((second, answer));
        assert!(room.lock().is_empty());
    }
}
