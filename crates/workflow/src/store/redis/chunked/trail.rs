//! The trail of a large state: fields of it that say which jobs its latest writes changed, so that whoever knows an earlier state need not
//! read all of it. The write with version v is in the field of v modulo their number.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::codec::change::{Put, Rows, Stamp, TrailEntry};
use crate::id::JobIndex;
use crate::store::redis::call::{ScriptArg, pack};

/// The jobs from which on a workflow has a trail. To read fewer costs no more than to read what changed.
pub(crate) const MIN_TRAIL_JOBS: usize = 256;
/// The most jobs of a write that a trail names, some 3 KiB.
const MAX_TRAIL_JOBS: usize = 1_024;

/// What a trail says of one write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    version: u64,
    /// Who wrote, and which jobs that changed. None: they are too many, or more has changed than jobs.
    changed: Option<(u32, Vec<JobIndex>)>,
}

/// How far a trail leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TrailChanges {
    /// The last write that is known.
    pub(super) stamp: Stamp,
    /// The jobs that have changed until then.
    pub(super) changed: BTreeSet<JobIndex>,
}

/// How many writes the trail of a workflow with so many jobs has. The more there is to read, the more others write meanwhile: here twice as
/// many as are written while a server that does nothing else reads it, each of 256 jobs. All of that is a tenth of what the state takes.
pub(crate) fn length(jobs: usize) -> u64 {
    (jobs as u64 / 128).next_power_of_two().clamp(64, 512)
}

/// The field of the write with this version, in a trail of this length.
pub(super) fn field(version: u64, length: u64) -> String {
    format!("t{}", version % length)
}

/// The field that a change writes, and its value. None: the workflow has no trail.
pub(crate) fn trail_field(put: &Put) -> Option<[ScriptArg<'_>; 2]> {
    let TrailEntry { stamp, jobs, .. } = put.trail.filter(|trail| trail.jobs >= MIN_TRAIL_JOBS)?;
    let mut noted = vec![u32::try_from(stamp.version).ok()? as usize];
    // Whoever is behind a write whose rows follow must see that they do.
    if put.jobs.len() <= MAX_TRAIL_JOBS && put.rows == Rows::AtOnce {
        noted.push(stamp.writer as usize);
        noted.extend(put.jobs.iter().map(|(job, _)| job.index()));
    }
    Some([
        ScriptArg::Text(field(stamp.version, length(jobs))),
        ScriptArg::Packed(pack(&noted)),
    ])
}

/// Follows a trail from a write, whose entry is the first of these. None: another write has its version, or the next one changed too much.
pub(super) fn read_trail<'a>(
    from: Stamp,
    entries: impl IntoIterator<Item = Option<&'a Bytes>>,
) -> Option<TrailChanges> {
    let mut entries = entries.into_iter().map(|entry| read(entry?));
    let is_of = |entry: &Entry| entry.version == from.version;
    match entries.next().flatten().filter(is_of) {
        Some(Entry {
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

/// What [`entry`] packed.
fn read(bytes: &Bytes) -> Option<Entry> {
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
    Some(Entry {
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
        let entry = Entry {
            version: 70_000,
            changed: Some((u32::MAX, jobs)),
        };
        assert_eq!(read(&packed(&noted)), Some(entry));
        assert_eq!(
            read(&packed(&[5])),
            Some(Entry {
                version: 5,
                changed: None
            })
        );
        for bytes in [&b""[..], b"\xdd\0\0\0", b"\x93\x01\x02\x03\x04\x05"] {
            assert_eq!(read(&Bytes::copy_from_slice(bytes)), None);
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
        // The writes before the end of the trail, which begins again there.
        check(&[&[7, 1], &[8, 2, 5], &[2, 3, 5]], Some((8, 2, &[5])));
        // A write that says nothing of what it changed.
        check(&[&[7], &[8, 2, 5]], Some((8, 2, &[5])));
        check(&[&[7, 1], &[8]], None);
        check(&[&[7, 2], &[8, 2, 5]], None);
        // The field of the write is that of a later one already: it is too long ago.
        check(&[&[71, 9], &[72, 9]], Some((7, 1, &[])));
    }
}
