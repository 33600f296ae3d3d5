//! Counter keys: the same bytes as the reference's, so that both services can share one Redis.

use crate::model::{Entry, Seconds};
use crate::tree::SharedValues;

/// Appends `prefix domain "_" ( key "_" value "_" )* start` to `out`.
///
/// An entry whose values share a counter is written with the shared text instead of its value.
/// Nothing is escaped. Two descriptors that give the same bytes share a counter, as in the
/// reference.
pub(crate) fn write(
    out: &mut Vec<u8>,
    scope: &Scope<'_>,
    entries: &[Entry],
    shared: &SharedValues<'_>,
    start: Seconds,
) {
    for part in [scope.prefix, scope.domain, "_"] {
        out.extend_from_slice(part.as_bytes());
    }
    for (index, entry) in entries.iter().enumerate() {
        let value = shared.get(index).copied().flatten().unwrap_or(&entry.value);
        for part in [&entry.key, "_", value, "_"] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.extend_from_slice(itoa::Buffer::new().format(start.0).as_bytes());
}

/// The start of all counter keys of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) domain: &'a str,
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::model::{Unit, Window};

    fn check(
        prefix: &str,
        pairs: &[(&str, &str)],
        shared: SharedValues<'_>,
        (unit, now): (Unit, u64),
        expected: &str,
    ) {
        let entries: Vec<Entry> = pairs
            .iter()
            .map(|(key, value)| Entry {
                key: (*key).into(),
                value: (*value).into(),
            })
            .collect();
        let mut key = Vec::new();
        let start = Window::containing(unit, Seconds(now)).start;
        write(
            &mut key,
            &Scope {
                prefix,
                domain: "domain",
            },
            &entries,
            &shared,
            start,
        );
        assert_eq!(String::from_utf8(key).unwrap(), expected);
    }

    #[test]
    fn keys_are_those_of_the_reference() {
        use Unit::{Day, Hour, Minute, Second};
        let none = SharedValues::new;
        check(
            "",
            &[("key", "value")],
            none(),
            (Second, 1234),
            "domain_key_value_1234",
        );
        check(
            "",
            &[("key2", "value2"), ("subkey2", "subvalue2")],
            none(),
            (Minute, 1234),
            "domain_key2_value2_subkey2_subvalue2_1200",
        );
        check(
            "",
            &[("key3", "value3")],
            none(),
            (Hour, 1_000_000),
            "domain_key3_value3_997200",
        );
        check(
            "",
            &[("key3", "value3"), ("subkey3", "subvalue3")],
            none(),
            (Day, 1_000_000),
            "domain_key3_value3_subkey3_subvalue3_950400",
        );
        check(
            "prefix:",
            &[("key", "value")],
            none(),
            (Second, 1234),
            "prefix:domain_key_value_1234",
        );
        check(
            "",
            &[("key", "")],
            none(),
            (Second, 1234),
            "domain_key__1234",
        );
        check("", &[], none(), (Second, 1234), "domain_1234");
        check(
            "",
            &[("files", "files/a.pdf")],
            smallvec![Some("files/*")],
            (Second, 1234),
            "domain_files_files/*_1234",
        );
        check(
            "",
            &[("parent", "value1"), ("files", "nested/file1.txt")],
            smallvec![None, Some("nested/*")],
            (Second, 1234),
            "domain_parent_value1_files_nested/*_1234",
        );
    }
}
