//! Hash slots: the part of a cluster that a key belongs to.

/// The number of slots of every cluster.
pub(crate) const SLOTS: usize = 16_384;

/// Returns the number of a key's slot in every cluster, below 16,384.
#[must_use]
pub fn slot_of(key: &[u8]) -> u16 {
    Slot::for_key(key).number()
}

/// One of the 16,384 slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u16);

impl Slot {
    /// Returns the slot of a key: of the part between its first braces, if there is one.
    pub(crate) fn for_key(key: &[u8]) -> Self {
        Self(resp_rs::cluster::hash_slot(key))
    }

    /// Returns whether two keys are in one slot.
    pub(crate) fn share_slot(one: &[u8], other: &[u8]) -> bool {
        // Keys that are equal up to the end of the braces need no computation.
        one == other
            || tagged(one).is_some_and(|tagged| other.starts_with(tagged))
            || Self::for_key(one) == Self::for_key(other)
    }

    pub(crate) fn new(number: u16) -> Option<Self> {
        (usize::from(number) < SLOTS).then_some(Self(number))
    }

    pub(crate) fn number(self) -> u16 {
        self.0
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Returns a key up to the end of its first braces, if they are not empty.
fn tagged(key: &[u8]) -> Option<&[u8]> {
    let tag = key.iter().position(|&byte| byte == b'{')? + 1;
    let length = key[tag..].iter().position(|&byte| byte == b'}')?;
    (length > 0).then(|| &key[..=tag + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_non_empty_braces_count() {
        let check = |key: &str, hashed: &str| {
            assert_eq!(
                Slot::for_key(key.as_bytes()),
                Slot(resp_rs::cluster::hash_slot(hashed.as_bytes())),
                "{key}"
            );
        };
        assert_eq!(Slot::for_key(b"123456789"), Slot(0x31C3));
        check("{user}.name", "user");
        check("a{user}{other}", "user");
        check("{{user}}", "{user");
        check("{}user", "{}user");
        check("{user", "{user");
    }

    #[test]
    fn keys_share_a_slot_when_what_is_hashed_is_the_same() {
        let check = |one: &str, other: &str| {
            let same = Slot::for_key(one.as_bytes()) == Slot::for_key(other.as_bytes());
            assert_eq!(
                Slot::share_slot(one.as_bytes(), other.as_bytes()),
                same,
                "{one} {other}"
            );
        };
        let keys = [
            "{a}1", "{a}2", "x{a}", "a", "{}a", "{}b", "{a", "{a1", "{{a}}", "{{a}b", "",
            "x{a}{b}", "x{b}{a}",
        ];
        for one in keys {
            keys.iter().for_each(|other| check(one, other));
        }
    }
}

#[cfg(test)]
mod with_redis {
    use super::*;
    use crate::test_util::RedisServer;

    #[tokio::test]
    async fn slots_are_those_of_a_real_server() {
        // Few characters, so that braces meet in every order.
        let alphabet = b"{}ab{}";
        let mut rng = fastrand::Rng::with_seed(16_384);
        let mut key = || -> String {
            (0..rng.usize(1..12))
                .map(|_| char::from(alphabet[rng.usize(..alphabet.len())]))
                .collect()
        };
        let keys: Vec<String> = (0..5_000).map(|_| key()).collect();
        let server = RedisServer::start_with(&["--cluster-enabled", "yes"]).await;
        let questions: Vec<String> = keys
            .iter()
            .map(|key| format!("CLUSTER KEYSLOT {key}"))
            .collect();
        let replies = server.raw(&questions.join("\r\n"));
        assert_eq!(replies.lines().count(), keys.len());
        for (key, reply) in keys.iter().zip(replies.lines()) {
            assert_eq!(
                format!(":{}", Slot::for_key(key.as_bytes()).number()),
                reply,
                "{key}"
            );
        }
    }
}
