//! Hash slots: which part of a cluster a key belongs to.

/// The number of slots of every cluster.
pub(crate) const SLOTS: usize = 16_384;

/// One of the 16,384 slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u16);

impl Slot {
    /// The slot of a key: of the part between its first braces, when there is one.
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(resp_rs::cluster::hash_slot(key))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_non_empty_braces_count() {
        let check = |key: &str, hashed: &str| {
            assert_eq!(Slot::of(key.as_bytes()), Slot(resp_rs::cluster::hash_slot(hashed.as_bytes())), "{key}");
        };
        assert_eq!(Slot::of(b"123456789"), Slot(0x31C3));
        check("{user}.name", "user");
        check("a{user}{other}", "user");
        check("{{user}}", "{user");
        check("{}user", "{}user");
        check("{user", "{user");
    }
    #[tokio::test]
    async fn slots_are_those_of_a_real_server() {
        // Few characters, so that braces meet in every order.
        let alphabet = b"{}ab{}";
        let mut rng = fastrand::Rng::with_seed(16_384);
        let mut key =
            || -> String { (0..rng.usize(1..12)).map(|_| char::from(alphabet[rng.usize(..alphabet.len())])).collect() };
        let keys: Vec<String> = (0..5_000).map(|_| key()).collect();
        let server = crate::test_util::RedisServer::start_with(&["--cluster-enabled", "yes"]).await;
        let questions: Vec<String> = keys.iter().map(|key| format!("CLUSTER KEYSLOT {key}")).collect();
        let replies = server.raw(&questions.join("\r\n"));
        assert_eq!(replies.lines().count(), keys.len());
        for (key, reply) in keys.iter().zip(replies.lines()) {
            assert_eq!(format!(":{}", Slot::of(key.as_bytes()).number()), reply, "{key}");
        }
    }
}
