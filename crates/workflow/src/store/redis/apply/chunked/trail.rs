//! The trail of a large state: fields that name the jobs which its latest writes changed. A reader
//! with an earlier state reads only these jobs. The write with version v is in field v modulo the
//! length of the trail.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::codec::{Put, RowTiming, Stamp, TrailEntry};
use crate::model::JobIndex;
use crate::store::redis::apply::{ScriptArg, pack};

/// Jobs from which on a workflow has a trail. Reading fewer jobs costs no more than reading the
/// changed ones.
pub(crate) const MIN_TRAIL_JOBS: usize = 256;
/// The largest number of jobs of a write that a trail names: some 3 KiB.
const MAX_TRAIL_JOBS: usize = 1_024;

/// The record of one write in a trail.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TrailRecord {
    version: u64,
    /// The writer and the changed jobs. `None` if there are too many, or if more than jobs changed.
    changed: Option<(u32, Vec<JobIndex>)>,
}

/// The part of a trail that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TrailChanges {
    /// The latest write that was read.
    pub(super) stamp: Stamp,
    /// The jobs that changed up to that write.
    pub(super) changed: BTreeSet<JobIndex>,
}

/// Number of writes in the trail of a workflow. The more there is to read, the more others write
/// during the read. The trail has room for twice the writes, each of 256 jobs, that servers make
/// during a read. It takes a tenth of the state's memory.
pub(crate) fn trail_length(jobs: usize) -> u64 {
    (jobs as u64 / 128).next_power_of_two().clamp(64, 512)
}

/// The name of the field of a write, in a trail of this length.
pub(super) fn field_name(version: u64, length: u64) -> String {
    format!("t{}", version % length)
}

/// The trail field that a change writes, and its value. `None` if the workflow has no trail.
pub(crate) fn trail_field(put: &Put) -> Option<[ScriptArg<'_>; 2]> {
    let TrailEntry {
        stamp,
        job_count: jobs,
        ..
    } = put
        .trail
        .filter(|trail| trail.job_count >= MIN_TRAIL_JOBS)?;
    let mut packed = vec![u32::try_from(stamp.version).ok()? as usize];
    // If rows follow the state, the record has no jobs: a reader must then load the whole state and
    // its mark.
    if put.jobs.len() <= MAX_TRAIL_JOBS && put.row_timing == RowTiming::WithState {
        packed.push(stamp.writer as usize);
        packed.extend(put.jobs.iter().map(|(job, _)| job.index()));
    }
    Some([
        ScriptArg::Text(field_name(stamp.version, trail_length(jobs))),
        ScriptArg::Packed(pack(&packed)),
    ])
}

/// Reads a trail from the write `from`, whose record is the first of `entries`. `None` if another
/// write has its version, or a record does not name its jobs.
pub(super) fn read_trail<'a>(
    from: Stamp,
    entries: impl IntoIterator<Item = Option<&'a Bytes>>,
) -> Option<TrailChanges> {
    let mut entries = entries.into_iter().map(|entry| unpack(entry?));
    let is_from_version = |entry: &TrailRecord| entry.version == from.version;
    match entries.next().flatten().filter(is_from_version) {
        Some(TrailRecord {
            changed: Some((writer, _)),
            ..
        }) if writer != from.writer => return None,
        _ => {}
    }
    let mut followed = TrailChanges {
        stamp: from,
        changed: BTreeSet::new(),
    };
    for (version, entry) in (from.version + 1..).zip(entries) {
        let Some(entry) = entry.filter(|entry| entry.version == version) else {
            break;
        };
        let (writer, jobs) = entry.changed?;
        followed.stamp = Stamp { version, writer };
        followed.changed.extend(jobs);
    }
    Some(followed)
}

/// Unpacks a record that [`trail_field`] packed.
fn unpack(bytes: &Bytes) -> Option<TrailRecord> {
    let (head, mut rest) = bytes.split_first_chunk::<5>()?;
    (head[0] == 0xdd).then_some(())?;
    let mut next = || {
        let (&mark, after) = rest.split_first()?;
        let width = match mark {
            ..0x80 => 0,
            0xcd => 2,
            0xce => 4,
            _ => return None,
        };
        let (number, after) = after.split_at_checked(width)?;
        rest = after;
        Some(number.iter().fold(
            if width == 0 { u32::from(mark) } else { 0 },
            |all, &byte| all << 8 | u32::from(byte),
        ))
    };
    let version = next()?.into();
    let writer = next();
    let jobs = std::iter::from_fn(next).map(JobIndex).collect();
    Some(TrailRecord {
        version,
        changed: writer.map(|writer| (writer, jobs)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(noted: &[usize]) -> Bytes {
        pack(noted).into()
    }

    #[test]
    fn what_was_packed_is_read() {
        let noted = [70_000, 0xffff_ffff, 0, 127, 128, 255, 256, 65_535, 65_536];
        let jobs = noted[2..].iter().map(|&job| JobIndex(job as u32)).collect();
        let entry = TrailRecord {
            version: 70_000,
            changed: Some((u32::MAX, jobs)),
        };
        assert_eq!(unpack(&packed(&noted)), Some(entry));
        assert_eq!(
            unpack(&packed(&[5])),
            Some(TrailRecord {
                version: 5,
                changed: None
            })
        );
        for bytes in [&b""[..], b"\xdd\0\0\0", b"\x93\x01\x02\x03\x04\x05"] {
            assert_eq!(unpack(&Bytes::copy_from_slice(bytes)), None);
        }
    }

    #[test]
    fn a_trail_is_followed_until_its_end() {
        let check = |entries: &[&[usize]], expected: Option<(u64, u32, &[u32])>| {
            let entries: Vec<Bytes> = entries.iter().map(|noted| packed(noted)).collect();
            let followed = read_trail(
                Stamp {
                    version: 7,
                    writer: 1,
                },
                entries.iter().map(Some).chain([None]),
            );
            let expected = expected.map(|(version, writer, jobs)| {
                let changed = jobs.iter().copied().map(JobIndex).collect();
                TrailChanges {
                    stamp: Stamp { version, writer },
                    changed,
                }
            });
            assert_eq!(followed, expected, "{entries:?}");
        };
        check(&[&[7, 1, 3]], Some((7, 1, &[])));
        check(
            &[&[7, 1, 3], &[8, 2, 5, 6], &[9, 3, 5, 4]],
            Some((9, 3, &[4, 5, 6])),
        );
        // The trail ends before an older record, whose field is next in the ring.
        check(&[&[7, 1], &[8, 2, 5], &[2, 3, 5]], Some((8, 2, &[5])));
        // The first record does not name its jobs, which are not needed.
        check(&[&[7], &[8, 2, 5]], Some((8, 2, &[5])));
        check(&[&[7, 1], &[8]], None);
        check(&[&[7, 2], &[8, 2, 5]], None);
        // The field of the known write has a later record already.
        check(&[&[71, 9], &[72, 9]], Some((7, 1, &[])));
    }
}
