use super::*;

/// Expected result of parsing an address.
enum Read {
    /// As in radix v4.1.4: the address that it dials, the user and the password of its AUTH with a
    /// blank between them, and the database of its SELECT.
    As(&'static str, &'static str, u32),
    /// radix cannot dial it, and here it has a meaning.
    Wider(&'static str, &'static str, u32),
    /// radix cannot dial it, and it is refused here.
    Refused,
    /// radix sends Redis a database that Redis refuses, or drops a field that it cannot read. Here
    /// it is refused.
    Stricter,
}

use Read::{As, Refused, Stricter, Wider};

/// REDIS_AUTH, REDIS_URL, and what radix makes of both, which a program with radix and a connection
/// that records printed.
const FORMS_OF_RADIX: &[(&str, &str, Read)] = &[
    ("", "h:1", As("h:1", "", 0)),
    ("", "h:01", As("h:1", "", 0)),
    ("", "127.0.0.1:6379", As("127.0.0.1:6379", "", 0)),
    ("", "[::1]:6379", As("[::1]:6379", "", 0)),
    ("", "[fe80::1%eth0]:6379", As("[fe80::1%eth0]:6379", "", 0)),
    ("", ":6379", As("localhost:6379", "", 0)),
    ("", "h", Refused),
    ("", "h:", Refused),
    ("", "h:70000", Refused),
    ("", "h:0", Refused),
    ("", "h:x", Refused),
    ("", "a:b:1", Refused),
    ("", "::1:6379", Refused),
    ("", "redis://h:1", As("h:1", "", 0)),
    ("", "redis://h:01", As("h:1", "", 0)),
    ("", "redis://h:1/", As("h:1", "", 0)),
    ("", "redis://h:1/6", As("h:1", "", 6)),
    ("", "redis://h:1/6/", Stricter),
    ("", "redis://h:1//6", Stricter),
    ("", "redis://h:1/06", Stricter),
    ("", "redis://h:1/x", Stricter),
    ("", "redis://h:1/%36", As("h:1", "", 6)),
    ("", "redis://h:1/?db=6", As("h:1", "", 6)),
    ("", "redis://h:1?db=6", As("h:1", "", 6)),
    ("", "redis://h:1/2?db=6", As("h:1", "", 2)),
    ("", "redis://h:1/?db=", As("h:1", "", 0)),
    ("", "redis://h:1/?db=6&db=7", As("h:1", "", 6)),
    ("", "redis://h:1/?DB=6", As("h:1", "", 0)),
    ("", "redis://h:1/?db=%36", As("h:1", "", 6)),
    ("", "redis://h:1/?d%62=6", As("h:1", "", 6)),
    ("", "redis://h:1/?db=+6", Stricter),
    ("", "redis://h:1/?db=6;x=1", Stricter),
    ("", "redis://h:1/?timeout=5s", As("h:1", "", 0)),
    ("", "redis://h:1/?timeout=5s&db=6", As("h:1", "", 6)),
    ("", "redis://h:1/?", As("h:1", "", 0)),
    ("", "redis://h:1/#6", As("h:1", "", 0)),
    ("", "redis://h:1/6#x", As("h:1", "", 6)),
    ("", "redis://u:p@h:1", As("h:1", "u p", 0)),
    ("", "redis://:p@h:1", As("h:1", " p", 0)),
    ("", "redis://u:@h:1", As("h:1", "u ", 0)),
    ("", "redis://u@h:1", As("h:1", "u ", 0)),
    ("", "redis://@h:1", As("h:1", "", 0)),
    ("", "redis://:@h:1", As("h:1", "", 0)),
    ("", "redis://u:p:q@h:1", As("h:1", "u p:q", 0)),
    ("", "redis://u:p@q@h:1", As("h:1", "u p@q", 0)),
    ("", "redis://u%3Ax:p@h:1", As("h:1", "u:x p", 0)),
    ("", "redis://u:p%40q@h:1", As("h:1", "u p@q", 0)),
    ("", "redis://u:p%2Fq%3F%23@h:1", As("h:1", "u p/q?#", 0)),
    ("", "redis://u:p%@h:1", Refused),
    ("", "redis://u:p%zz@h:1", Refused),
    ("", "redis://u:p+q@h:1", As("h:1", "u p+q", 0)),
    ("", "redis://u:p q@h:1", Refused),
    ("", "redis://u:p^q@h:1", Refused),
    ("", "redis://u:pä@h:1", Refused),
    ("", "redis://u:p/q@h:1", Refused),
    ("", "redis://u:p?q@h:1", Refused),
    ("", "redis://u:p#q@h:1", Refused),
    ("", "redis://u:p,q@h:1", As("h:1", "u p,q", 0)),
    ("", "redis://u:p[q@h:1", Refused),
    (
        "",
        "redis://u:p$&'()*+;=!~-._q@h:1",
        As("h:1", "u p$&'()*+;=!~-._q", 0),
    ),
    ("", "redis://h:1/?password=p", As("h:1", " p", 0)),
    (
        "",
        "redis://h:1/?username=u&password=p",
        As("h:1", "u p", 0),
    ),
    ("", "redis://h:1/?username=u", As("h:1", "u ", 0)),
    ("", "redis://u@h:1/?password=p", As("h:1", "u p", 0)),
    ("", "redis://:p@h:1/?username=u", As("h:1", "u p", 0)),
    (
        "",
        "redis://u:p@h:1/?username=v&password=q",
        As("h:1", "u p", 0),
    ),
    ("", "redis://h:1/?password=p+q", As("h:1", " p q", 0)),
    ("", "redis://h:1/?password=p%2Bq", As("h:1", " p+q", 0)),
    ("", "redis://h:1/?password=p%zz", Stricter),
    ("", "redis://h:1/?password=p%26q&db=3", As("h:1", " p&q", 3)),
    ("", "redis://h", Wider("h:6379", "", 0)),
    ("", "redis://h:", Refused),
    ("", "redis://h/6", Wider("h:6379", "", 6)),
    ("", "redis://:1", As("localhost:1", "", 0)),
    ("", "redis://", Refused),
    ("", "redis:///6", Refused),
    ("", "redis:///run/redis.sock", Refused),
    ("", "redis://[::1]:1/2", As("[::1]:1", "", 2)),
    ("", "redis://[::1]/2", Wider("[::1]:6379", "", 2)),
    (
        "",
        "redis://[fe80::1%25eth0]:1",
        As("[fe80::1%eth0]:1", "", 0),
    ),
    ("", "redis://a:b:1", Refused),
    ("", "redis://h:1x", Refused),
    ("", "redis://h:+1", Refused),
    ("", "redis://h:70000", Refused),
    ("", "redis://u:p@h:1/6?db=7", As("h:1", "u p", 6)),
    ("", "redis://h%41:1", Refused),
    ("", "redis://h_x.y-z:1", As("h_x.y-z:1", "", 0)),
    ("", "redis:// h:1", Refused),
    ("", "rediss://u:p@h:1", Wider("h:1", "u p", 0)),
    ("", "REDIS://h:1", Refused),
    ("", "unix:///run/redis.sock", Refused),
    ("", "redis+tls://h:1", Refused),
    ("", "h:1/6", Refused),
    ("", "u:p@h:1", Refused),
    ("", "h:1,password=p", Refused),
    ("s", "redis://h:1", As("h:1", " s", 0)),
    ("s", "redis://u@h:1", As("h:1", "u s", 0)),
    ("s", "redis://u:p@h:1", As("h:1", "u s", 0)),
    ("s", "redis://:p@h:1", As("h:1", " s", 0)),
    ("v:s", "redis://h:1", As("h:1", "v s", 0)),
    ("v:s", "redis://u:p@h:1", As("h:1", "v s", 0)),
    (":s", "redis://u:p@h:1", As("h:1", "u s", 0)),
    ("v:", "redis://u:p@h:1", As("h:1", "v p", 0)),
    ("v:", "h:1", As("h:1", "v ", 0)),
    (":s", "h:1", As("h:1", " s", 0)),
    (
        "s",
        "redis://h:1/?username=u&password=p",
        As("h:1", "u s", 0),
    ),
    ("v:s:t", "h:1", As("h:1", "v s:t", 0)),
];

/// `redis://h:1/?db=6` counted in database 0, and a user in the URL was lost beside REDIS_AUTH.
#[test]
fn addresses_mean_what_they_mean_in_radix() {
    for (auth, url, read) in FORMS_OF_RADIX {
        let found = target(url, "tcp").map(|target| {
            let login = Login::from_setting(auth).or(target.login).credentials();
            let login = login
                .map(|login| format!("{} {}", login.username.unwrap_or_default(), login.password));
            (
                target.address.to_string(),
                login.unwrap_or_default(),
                target.database,
            )
        });
        match read {
            As(address, login, database) | Wider(address, login, database) => {
                assert_eq!(
                    found,
                    Ok(((*address).to_owned(), (*login).to_owned(), *database)),
                    "{auth} {url}"
                );
            }
            Refused | Stricter => assert!(found.is_err(), "{auth} {url}: {found:?}"),
        }
    }
}

#[test]
fn fields_of_a_query_that_mean_nothing_are_noticed() {
    for (url, expected) in [
        ("redis://h:1/?timeout=5s", true),
        ("redis://h:1/?DB=6", true),
        ("redis://h:1/?x", true),
        ("redis://h:1/?db=6&username=u&password=p", false),
        ("redis://h:1/?&", false),
        ("redis://h:1", false),
    ] {
        assert_eq!(
            target(url, "").unwrap().has_unknown_fields,
            expected,
            "{url}"
        );
    }
}

#[test]
fn sockets_are_paths() {
    for socket in ["", "unix"] {
        assert_eq!(
            target("/run/redis.sock", socket).unwrap().address,
            Address::Unix("/run/redis.sock".into())
        );
    }
    assert_eq!(
        target("redis.sock", "unix").unwrap().address,
        Address::Unix("redis.sock".into())
    );
    for (url, socket) in [("", ""), ("redis", ""), ("/run/x", "tcp")] {
        assert!(target(url, socket).is_err(), "{url}");
    }
}

/// A refused address may contain a password.
#[test]
fn a_refusal_shows_nothing_of_the_address() {
    for url in [
        "redis://u:hunter2#@h:1",
        "redis://u:hunter2/@h:1",
        "redis://u:hunter2?@h:1",
        "redis://u:hunter2%@h:1",
        "redis://h:1/hunter2",
        "redis://h:1/?password=hunter2%",
        "redis://h:1?db=hunter2",
        "hunter2@h:1",
        "h:1,password=hunter2",
    ] {
        let reason = target(url, "tcp").unwrap_err();
        assert!(!reason.contains("hunter"), "{url}: {reason}");
    }
}
