//! The names of keys. All keys of a partition have one hash tag, so they are on one node and one
//! script may write them all.

use std::sync::LazyLock;

use tidegate_pipeline::slot_of;

use crate::codec::ResultField;
use crate::model::{JobIndex, Partition, WorkflowId};
use crate::store::redis::read::reply;
use crate::store::{Register, SharedTable, TimeIndex};

/// The largest number of partitions: the number of tags.
pub(super) const MAX_PARTITIONS: u16 = 256;

/// The field of a state that has the meta.
pub(super) const META: &[u8] = b"m";

/// The fields of a state that have the label, in chunks.
pub(super) const LABEL: [&[u8]; 4] = [b"l", b"l1", b"l2", b"l3"];

/// Bytes of the longest value that Redis keeps in a compact hash, by default.
const MAX_COMPACT_BYTES: usize = 64;

/// Builds the names of keys.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
    /// The tag of each partition.
    tags: Vec<String>,
}

/// The keys that belong to one workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkflowKey {
    /// A hash: meta, label, and the jobs that have changed.
    State = b'w' as isize,
    /// A string: the state of a small workflow.
    Small = b's' as isize,
    /// A string: the graph.
    Graph = b'd' as isize,
    /// A hash: outputs and errors.
    Results = b'o' as isize,
}

/// The sorted sets of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    Ready,
    Index,
    Timers,
    Expiries,
}

impl Set {
    /// All sets, in the order in which the script gets them.
    pub(super) const ALL: [Self; 4] = [Self::Ready, Self::Index, Self::Timers, Self::Expiries];

    fn word(self) -> &'static str {
        match self {
            Self::Ready => "rq",
            Self::Index => "ix",
            Self::Timers => "tm",
            Self::Expiries => "ex",
        }
    }
}

impl From<TimeIndex> for Set {
    fn from(which: TimeIndex) -> Self {
        match which {
            TimeIndex::Timers => Self::Timers,
            TimeIndex::Expiries => Self::Expiries,
        }
    }
}

impl Keys {
    /// Names of keys that begin with `prefix`, for a power of two of `partitions`, at most
    /// [`MAX_PARTITIONS`].
    pub(super) fn new(prefix: String, partitions: u16) -> Self {
        let step = usize::from(MAX_PARTITIONS / partitions);
        let tags = TAGS.iter().step_by(step).cloned().collect();
        Self { prefix, tags }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn partitions(&self) -> u16 {
        self.tags.len() as u16
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Partition> + use<> {
        (0..self.partitions()).map(Partition)
    }

    fn partition_key(&self, partition: Partition, rest: usize) -> String {
        // An id may name a partition that this store does not have. Such a key never exists.
        let tag = &self.tags[usize::from(partition.0) % self.tags.len()];
        let mut key = String::with_capacity(self.prefix.len() + 6 + rest);
        key.push_str(&self.prefix);
        key.push('{');
        key.push_str(tag);
        key.push_str("}:");
        key
    }

    pub(super) fn set(&self, partition: Partition, set: Set) -> String {
        self.partition_key(partition, 2) + set.word()
    }

    pub(super) fn workflow_key(&self, id: WorkflowId, kind: WorkflowKey) -> String {
        let mut key = self.partition_key(id.partition(), 28);
        key.push(char::from(kind as u8));
        key.push(':');
        id.push_to(&mut key);
        key
    }

    /// The pattern of SCAN for the keys of all states of a partition.
    pub(super) fn state_pattern(&self, partition: Partition) -> String {
        self.partition_key(partition, 6) + "[ws]:*"
    }

    /// The key under which a state is staged before it is renamed.
    pub(super) fn staged(&self, id: WorkflowId, writer: u32) -> String {
        format!(
            "{}n:{id}:{writer:08x}",
            self.partition_key(id.partition(), 38)
        )
    }

    /// Scratch keys of probes: a hash and a string. They exist only while a script runs.
    pub(super) fn scratch(&self, partition: Partition) -> [String; 2] {
        [":h", ":s"].map(|word| self.partition_key(partition, 3) + "p" + word)
    }

    /// The holders of a limit's permits, and the server that waits for one of them.
    pub(super) fn permits(&self, partition: Partition, limit: &str) -> [String; 2] {
        ["h:", "hw:"]
            .map(|word| self.partition_key(partition, word.len() + limit.len()) + word + limit)
    }

    /// The channel of notices about a partition. It has the partition's tag, because a script may
    /// only use keys of its node.
    pub(super) fn channel(&self, partition: Partition) -> String {
        self.partition_key(partition, 1) + "c"
    }

    /// The hash of server heartbeats, and the channel of broadcasts to all servers. They are on the
    /// node whose clock all servers follow.
    pub(super) fn servers(&self) -> [String; 2] {
        ["sv", "cs"].map(|word| self.partition_key(Partition(0), word.len()) + word)
    }

    /// The hash of a shared table, on the same node as the heartbeats.
    pub(super) fn shared_table(&self, table: SharedTable) -> String {
        let word = match table {
            SharedTable::Workers => "bw",
            SharedTable::Draining => "bd",
        };
        self.partition_key(Partition(0), word.len()) + word
    }

    pub(super) fn idempotency(&self, partition: Partition, name: &str) -> String {
        self.partition_key(partition, 2 + name.len()) + "k:" + name
    }

    pub(super) fn meta(prefix: &str) -> String {
        format!("{prefix}meta")
    }

    pub(super) fn register(&self, register: Register) -> String {
        let word = match register {
            Register::Queues => "queues",
            Register::Names => "names",
        };
        format!("{}{word}", self.prefix)
    }

    /// The policies of queues and handlers, on the node of the names of queues: a server needs no
    /// other node to start.
    pub(super) fn policies(&self) -> String {
        format!(
            "{}{{{}}}:terms",
            self.prefix,
            self.register(Register::Queues)
        )
    }

    /// The keys that accompany a register, on its node: its sorted names, and the times at which
    /// they were registered.
    pub(super) fn register_indexes(&self, register: Register) -> [String; 2] {
        let tag = self.register(register);
        ["order", "entered"].map(|word| format!("{}{{{tag}}}:{word}", self.prefix))
    }
}

/// The field of a result: the number of the job, and for an error a dot and its number. Notes of
/// workers have a letter after the dot.
pub(super) fn result_field(field: ResultField) -> String {
    match field {
        ResultField::Output(job) => job.to_string(),
        ResultField::Error(job, place) => format!("{job}.{place}"),
        ResultField::Progress(job) => format!("{job}.p"),
        ResultField::Log(job) => format!("{job}.l"),
        ResultField::LogPiece(job, slot) => format!("{job}.l{slot}"),
    }
}

/// The field of a state that marks a write whose ready rows may be missing.
pub(super) fn missing_rows_field(writer: u32) -> String {
    format!("x{writer:08x}")
}

/// The pattern of HSCAN for these marks.
pub(super) const MISSING_ROWS_PATTERN: &[u8] = b"x*";

/// The writer that such a mark names. `None` for other fields.
pub(super) fn missing_rows_writer(field: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(field.strip_prefix(b"x")?).ok()?, 16).ok()
}

/// The job that a field of a state belongs to. `None` for other fields.
pub(super) fn job_of(field: &[u8]) -> Option<JobIndex> {
    reply::parse(field).map(JobIndex)
}

/// The fields of a label. One long value would make Redis store the whole hash in three times the
/// memory, so a long label is divided into chunks. A very long one is not.
pub(super) fn label_fields(label: &[u8]) -> impl Iterator<Item = (&'static [u8], &[u8])> {
    let chunk_bytes = if label.len() <= MAX_COMPACT_BYTES * LABEL.len() {
        MAX_COMPACT_BYTES
    } else {
        label.len()
    };
    // An empty label has a field too.
    let chunks = label
        .chunks(chunk_bytes)
        .chain(label.is_empty().then_some(label));
    LABEL.into_iter().zip(chunks)
}

/// Slots of Redis Cluster for each tag.
const SLOTS_PER_TAG: u16 = 64;

/// Tag n is in slots 64n to 64n+63: the first name of two letters there, or else of three. P
/// partitions use every 256/P-th tag, so they are spread evenly over nodes that own ranges of slots.
/// Plain numbers as tags would not be.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let prepend = |names: &[String]| -> Vec<String> {
        ('a'..='z')
            .flat_map(|letter| names.iter().map(move |name| format!("{letter}{name}")))
            .collect()
    };
    let pairs = prepend(&prepend(&[String::new()]));
    let triples = prepend(&pairs);
    let mut tags = vec![String::new(); MAX_PARTITIONS.into()];
    for name in pairs.into_iter().chain(triples) {
        let tag = &mut tags[usize::from(slot_of(name.as_bytes()) / SLOTS_PER_TAG)];
        if tag.is_empty() {
            *tag = name;
        }
    }
    tags
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;

    #[rustfmt::skip]
    const EXISTING_TAGS: [&str; 256] = [
        "cv", "bl", "cr", "bh", "afb", "bd", "cz", "ma", "cg", "aga", "cc", "by", "co", "bu", "ck", "bq", "ae", "aec",
        "aa", "oz", "am", "ov", "ai", "or", "at", "oo", "ap", "ok", "aka", "og", "ax", "oc", "kz", "ea", "aac", "ee",
        "ds", "ei", "dw", "em", "dj", "ep", "dn", "et", "db", "ex", "df", "aoa", "fh", "gr", "fl", "gv", "ia", "gz", "fd",
        "abb", "fy", "gc", "aca", "gg", "fq", "gk", "fu", "go", "cw", "bm", "cs", "bi", "afc", "be", "lz", "ba", "cf",
        "aha", "cb", "bx", "cn", "bt", "cj", "bp", "ad", "aeb", "na", "qy", "al", "ow", "ah", "os", "au", "on", "aq",
        "oj", "ada", "of", "ay", "ob", "dz", "ja", "aab", "ed", "dr", "eh", "dv", "el", "dk", "eq", "do", "eu", "dc",
        "ey", "dg", "aqb", "fi", "gs", "fm", "gw", "fa", "hz", "fe", "abc", "fx", "gb", "ala", "gf", "fp", "gj", "ft",
        "gn", "bn", "ct", "bj", "cp", "bf", "aia", "bb", "cx", "agc", "ce", "mz", "ca", "bw", "cm", "bs", "ci", "aea",
        "ag", "ox", "ac", "ot", "ao", "op", "ak", "om", "av", "oi", "ar", "oe", "adb", "oa", "az", "ec", "dy", "eg",
        "aaa", "ek", "dq", "eo", "du", "er", "dh", "ev", "dl", "ez", "ka", "aoc", "dd", "gp", "fj", "gt", "fn", "gx",
        "fb", "ama", "ff", "ga", "iz", "ge", "acc", "gi", "fs", "gm", "fw", "bo", "cu", "bk", "cq", "bg", "afa", "bc",
        "cy", "agb", "cd", "bz", "la", "bv", "cl", "br", "ch", "aja", "af", "oy", "ab", "ou", "an", "oq", "aj", "ol",
        "aw", "oh", "as", "od", "adc", "qb", "nz", "eb", "dx", "ef", "ana", "ej", "dp", "en", "dt", "es", "di", "ew",
        "dm", "jz", "da", "aob", "de", "gq", "fk", "gu", "fo", "gy", "fc", "aba", "fg", "ha", "fz", "gd", "acb", "gh",
        "fr", "gl", "fv",
    ];

    #[test]
    fn tags_are_those_of_existing_stores() {
        assert_eq!(*TAGS, EXISTING_TAGS);
    }

    #[test]
    fn all_keys_of_a_partition_have_its_tag() {
        let keys = Keys::new("my:".to_owned(), 16);
        let id = WorkflowId::new(Timestamp::from_micros(0), Partition(15), 1);
        let last = &TAGS[240];
        assert_eq!(
            keys.workflow_key(id, WorkflowKey::State),
            format!("my:{{{last}}}:w:{id}")
        );
        assert_eq!(
            keys.workflow_key(id, WorkflowKey::Graph),
            format!("my:{{{last}}}:d:{id}")
        );
        assert_eq!(
            keys.workflow_key(id, WorkflowKey::Results),
            format!("my:{{{last}}}:o:{id}")
        );
        assert_eq!(
            keys.set(Partition(15), Set::Index),
            format!("my:{{{last}}}:ix")
        );
        assert_eq!(
            keys.idempotency(Partition(15), "{a}"),
            format!("my:{{{last}}}:k:{{a}}")
        );
    }

    #[test]
    fn a_label_is_cut_into_values_that_stay_compact() {
        let check = |length: usize, pieces: &[usize]| {
            let label: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let fields: Vec<_> = label_fields(&label).collect();
            assert_eq!(
                fields
                    .iter()
                    .map(|(_, value)| value.len())
                    .collect::<Vec<_>>(),
                pieces,
                "{length}"
            );
            assert_eq!(
                fields
                    .iter()
                    .flat_map(|(_, value)| value.iter().copied())
                    .collect::<Vec<_>>(),
                label
            );
        };
        check(0, &[0]);
        check(64, &[64]);
        check(65, &[64, 1]);
        check(256, &[64; 4]);
        check(257, &[257]);
    }
}

#[cfg(test)]
mod with_redis {
    use tidegate_pipeline::test_util::RedisServer;

    use super::*;

    #[tokio::test]
    async fn partitions_are_spread_evenly_over_the_slots_of_a_real_server() {
        let server = RedisServer::start_with(&["--cluster-enabled", "yes"]).await;
        for partitions in [1, 2, 16, MAX_PARTITIONS] {
            let keys = Keys::new("tg:".to_owned(), partitions);
            let ready = |partition| format!("CLUSTER KEYSLOT {}", keys.set(partition, Set::Ready));
            let replies = server.raw(&keys.all().map(ready).collect::<Vec<_>>().join("\r\n"));
            let slots: Vec<u16> = replies
                .lines()
                .map(|slot| slot[1..].parse().unwrap())
                .collect();
            assert_eq!(slots.len(), usize::from(partitions));
            let share = 16_384 / u32::from(partitions);
            for (partition, slot) in (0..).zip(slots) {
                assert_eq!(
                    u32::from(slot) / share,
                    partition,
                    "of {partitions} partitions, in slot {slot}"
                );
            }
        }
    }
}
