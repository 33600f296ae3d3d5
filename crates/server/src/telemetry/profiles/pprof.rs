//! Encoder of the pprof format: a compressed protobuf message. The field numbers are those of the
//! format.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::threads::ThreadSample;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<ProfileSample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

/// A type of value, as indices in the table of strings.
#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ProfileSample {
    /// Ids of the stack's locations, the innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<SourceLine>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct SourceLine {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
}

/// Encodes the profile of `threads`. It began `time_nanos` after 1970, and took `duration`.
pub(super) fn encode(threads: &[ThreadSample], time_nanos: u64, duration: Duration) -> Vec<u8> {
    let mut names = StringTable::default();
    let [waiting, cpu] = ["waiting", "cpu"].map(|kind| ValueType {
        kind: names.text(kind),
        unit: names.text("nanoseconds"),
    });
    let sample = samples(threads, &mut names);
    let profile = Profile {
        sample_type: vec![waiting, cpu],
        sample,
        location: names.locations.values().map(location).collect(),
        function: names.functions,
        string_table: names.texts,
        time_nanos: time_nanos as i64,
        duration_nanos: duration.as_nanos() as i64,
        period_type: Some(cpu),
        period: 1,
        default_sample_type: cpu.kind,
    };
    gzip(&profile.encode_to_vec())
}

/// The location of a function, which has the id of the function.
fn location(id: &u64) -> Location {
    Location {
        id: *id,
        line: vec![SourceLine { function_id: *id }],
    }
}

/// Samples of waiting time and CPU time: one for each thread and part of its time.
fn samples(threads: &[ThreadSample], names: &mut StringTable) -> Vec<ProfileSample> {
    let process = names.location("tidegate");
    let mut samples = Vec::new();
    for thread in threads {
        let thread_location = names.location(&thread.name);
        let [(user, user_nanos), (kernel, kernel_nanos)] = thread.modes();
        for (part, waiting, running) in [
            (user, 0, user_nanos),
            (kernel, 0, kernel_nanos),
            ("waiting for a core", thread.waiting, 0),
        ] {
            if waiting + running > 0 {
                let part = names.location(&thread.part(part));
                samples.push(ProfileSample {
                    location_id: vec![part, thread_location, process],
                    value: vec![waiting as i64, running as i64],
                });
            }
        }
    }
    samples
}

/// Compresses `bytes` in the format of gzip.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Table of strings, with a function and a location for each name.
struct StringTable {
    texts: Vec<String>,
    indices: HashMap<String, i64>,
    locations: HashMap<i64, u64>,
    functions: Vec<Function>,
}

impl Default for StringTable {
    /// The format requires that the first string is empty.
    fn default() -> Self {
        let known = HashMap::from([(String::new(), 0)]);
        Self {
            texts: vec![String::new()],
            indices: known,
            locations: HashMap::new(),
            functions: Vec::new(),
        }
    }
}

impl StringTable {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(at) = self.indices.get(text) {
            return *at;
        }
        let at = self.texts.len() as i64;
        self.texts.push(text.to_owned());
        self.indices.insert(text.to_owned(), at);
        at
    }

    fn location(&mut self, name: &str) -> u64 {
        let name = self.text(name);
        let id = self.locations.len() as u64 + 1;
        let functions = &mut self.functions;
        *self.locations.entry(name).or_insert_with(|| {
            functions.push(Function {
                id,
                name,
                system_name: name,
            });
            id
        })
    }
}
