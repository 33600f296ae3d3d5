//! What is logged at each level, and how a line looks in JSON.

use std::collections::BTreeSet;

use super::process::Process;
use crate::support::{Limits, get};

/// The levels of the lines of a server with a mistake in its configuration, a variable that looks misspelt, and one connection.
fn levels(given: &[(&str, &str)]) -> BTreeSet<&'static str> {
    let limits =
        Limits::new("domain: shop\ndescriptors:\n  - key: a\n    rate_limit: {unit: foo}\n");
    let more = [
        &[("RUNTIME_ROOT", limits.root()), ("REDIS_ULR", "a:1")],
        given,
    ]
    .concat();
    let server = Process::start(&more);
    get(server.address("HTTP"), "/healthcheck");
    super::process::speak_http_2(server.address("gRPC"));
    server.signal("TERM");
    let (_, log) = server.end();
    let all = ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"];
    all.into_iter()
        .filter(|level| log.lines().any(|line| line.contains(&format!(" {level} "))))
        .collect()
}

#[test]
fn a_level_shows_itself_and_what_is_worse() {
    for (level, expected) in [
        // At `warn`, the lines of `INFO` are those about the server as a whole.
        (None, &["ERROR", "WARN", "INFO"][..]),
        (Some("WARN"), &["ERROR", "WARN", "INFO"]),
        (Some("warning"), &["ERROR", "WARN", "INFO"]),
        (Some("panic"), &["ERROR"]),
        (Some("fatal"), &["ERROR"]),
        (Some("Error"), &["ERROR"]),
        (Some("info"), &["ERROR", "WARN", "INFO"]),
        (Some("debug"), &["ERROR", "WARN", "INFO", "DEBUG"]),
        (Some("trace"), &["ERROR", "WARN", "INFO", "DEBUG", "TRACE"]),
    ] {
        let given: Vec<_> = level.iter().map(|level| ("LOG_LEVEL", *level)).collect();
        assert_eq!(
            levels(&given),
            expected.iter().copied().collect(),
            "{level:?}"
        );
    }
}

#[test]
fn json_has_the_names_of_the_reference_for_time_message_and_level() {
    let limits =
        Limits::new("domain: shop\ndescriptors:\n  - key: a\n    rate_limit: {unit: foo}\n");
    let more = [
        ("RUNTIME_ROOT", limits.root()),
        ("REDIS_ULR", "a:1"),
        ("LOG_FORMAT", "json"),
        ("LOG_LEVEL", "info"),
    ];
    let server = Process::start(&more);
    server.signal("TERM");
    let (_, log) = server.end();
    let mut levels = BTreeSet::new();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let time = line["@timestamp"].as_str().unwrap();
        // RFC 3339 with a fraction, in UTC.
        assert!(
            time.len() > 20
                && time.ends_with('Z')
                && time.as_bytes()[10] == b'T'
                && time.contains('.'),
            "{time}"
        );
        assert!(!line["@message"].as_str().unwrap().is_empty(), "{line}");
        levels.insert(line["level"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        levels.iter().map(String::as_str).collect::<Vec<_>>(),
        ["error", "info", "warning"]
    );
}

#[test]
fn any_case_of_json_is_json_and_any_other_word_is_text() {
    use tidegate::settings::{LogFormat, Settings};
    for (word, expected) in [
        ("json", LogFormat::Json),
        ("JSON", LogFormat::Json),
        ("text", LogFormat::Text),
        ("", LogFormat::Text),
        ("xml", LogFormat::Text),
    ] {
        let given = [("LOG_FORMAT".to_owned(), word.to_owned())].into();
        assert_eq!(
            Settings::parse(&given).unwrap().log.format,
            expected,
            "{word}"
        );

        // JSON has none in any case.
        let given = [given, [("NO_COLOR".to_owned(), "1".to_owned())].into()]
            .into_iter()
            .flatten()
            .collect();
        let expected = if expected == LogFormat::Text {
            LogFormat::Colourless
        } else {
            expected
        };
        assert_eq!(
            Settings::parse(&given).unwrap().log.format,
            expected,
            "{word} without colours"
        );
    }
}
