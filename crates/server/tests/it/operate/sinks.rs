//! Settings of where metrics go.

use tidegate::settings::{Dialect, MetricsSettings, Settings, Transport};

use crate::support::variables;

fn parse(more: &[(&str, &str)]) -> Result<(MetricsSettings, Vec<String>), String> {
    let settings = Settings::parse(&variables(more).into_iter().collect())
        .map_err(|error| error.to_string())?;
    Ok((settings.metrics, settings.warnings))
}

#[test]
fn metrics_have_one_destination() {
    let on = |names: &[&'static str]| names.iter().map(|name| (*name, "true")).collect::<Vec<_>>();
    for (names, refused) in [
        (vec!["USE_STATSD", "USE_PROMETHEUS"], true),
        (vec!["USE_DOG_STATSD", "USE_PROMETHEUS"], true),
        (vec!["USE_DOG_STATSD", "USE_STATSD"], true),
        (vec!["USE_DOG_STATSD", "USE_STATSD", "USE_PROMETHEUS"], true),
        (vec!["USE_STATSD"], false),
        (vec!["USE_DOG_STATSD"], false),
        (vec!["USE_PROMETHEUS"], false),
        (
            vec![
                "USE_DOG_STATSD",
                "USE_STATSD",
                "USE_PROMETHEUS",
                "DISABLE_STATS",
            ],
            false,
        ),
    ] {
        let parsed = parse(&on(&names));
        assert_eq!(parsed.is_err(), refused, "{names:?}: {parsed:?}");
        if let Err(error) = parsed {
            assert!(
                error.contains("set one of USE_DOG_STATSD, USE_STATSD, USE_PROMETHEUS only"),
                "{error}"
            );
            assert!(names.iter().all(|name| error.contains(name)), "{error}");
        }
    }
    let (metrics, _) = parse(&on(&["USE_STATSD", "DISABLE_STATS"])).unwrap();
    assert!(metrics.statsd.is_none() && metrics.prometheus.is_none());
}

#[test]
fn statsd_is_on_the_references_port_and_off_unless_it_is_set() {
    assert!(parse(&[]).unwrap().0.statsd.is_none());
    let statsd = parse(&[("USE_STATSD", "true")]).unwrap().0.statsd.unwrap();
    assert_eq!(
        (statsd.host.as_str(), statsd.port, statsd.transport),
        ("localhost", 8125, Transport::Tcp)
    );
    assert_eq!(statsd.interval.as_secs(), 10);
    assert!(matches!(statsd.dialect, Dialect::Statsd));
    let udp = parse(&[
        ("USE_STATSD", "true"),
        ("STATSD_PROTOCOL", "udp"),
        ("STATS_FLUSH_INTERVAL", "150ms"),
    ])
    .unwrap();
    let udp = udp.0.statsd.unwrap();
    assert_eq!(
        (udp.transport, udp.interval.as_millis()),
        (Transport::Udp, 150)
    );
    let error = parse(&[
        ("USE_STATSD", "true"),
        ("STATSD_HOST", ""),
        ("STATSD_PORT", "0"),
        ("STATSD_PROTOCOL", "unix"),
        ("STATS_FLUSH_INTERVAL", "0"),
    ]);
    let error = error.unwrap_err();
    assert!(error.starts_with("4 settings are wrong\n"), "{error}");
}

#[test]
fn rules_for_dogstatsd_are_read_in_both_spellings() {
    let (metrics, warnings) = parse(&[
        ("USE_DOG_STATSD", "true"),
        ("USE_DOG_STATSD_MOGRIFIERS", "first,Second"),
        ("DOG_STATSD_MOGRIFIER_FIRST_PATTERN", r"^a\.(.*)$"),
        ("DOG_STATSD_MOGRIFIER_FIRST_NAME", "b.$1"),
        ("DOG_STATSD_MOGRIFIER_FIRST_TAGS", "k:$1,l:x"),
        ("DOG_STATSD_MOGRIFIERS_SECOND_PATTERN", "c"),
        ("DOG_STATSD_MOGRIFIERS_SECOND_NAME", "d"),
        ("DOG_STATSD_MOGRIFIER_THIRD_NAME", "e"),
    ])
    .unwrap();
    let Dialect::Dog(rules) = metrics.statsd.unwrap().dialect else {
        panic!("not DogStatsD")
    };
    assert_eq!(
        rules
            .iter()
            .map(|rule| rule.name.as_str())
            .collect::<Vec<_>>(),
        ["b.$1", "d"]
    );
    assert_eq!(rules[0].tags.len(), 2);
    let told = |text: &str| {
        assert!(
            warnings.iter().any(|warning| warning.contains(text)),
            "{warnings:?}"
        )
    };
    told(
        "DOG_STATSD_MOGRIFIERS_SECOND_PATTERN is deprecated; use DOG_STATSD_MOGRIFIER_SECOND_PATTERN",
    );
    told("DOG_STATSD_MOGRIFIER_THIRD_NAME has no effect");
    assert_eq!(warnings.len(), 3, "{warnings:?}");

    let (metrics, warnings) = parse(&[
        ("USE_DOG_STATSD", "true"),
        ("DOG_STATSD_MOGRIFIERS", "x"),
        ("DOG_STATSD_MOGRIFIER_X_PATTERN", "a"),
        ("DOG_STATSD_MOGRIFIER_X_NAME", "b"),
    ])
    .unwrap();
    assert!(matches!(metrics.statsd.unwrap().dialect, Dialect::Dog(rules) if rules.len() == 1));
    assert_eq!(
        warnings,
        ["DOG_STATSD_MOGRIFIERS is deprecated; use USE_DOG_STATSD_MOGRIFIERS"]
    );
}

#[test]
fn rules_for_dogstatsd_with_mistakes_are_all_refused_at_once() {
    let error = parse(&[
        ("USE_DOG_STATSD", "true"),
        ("USE_DOG_STATSD_MOGRIFIERS", "none,bad,tags,open,letters"),
        ("DOG_STATSD_MOGRIFIER_NONE_NAME", "x"),
        ("DOG_STATSD_MOGRIFIER_BAD_PATTERN", "("),
        ("DOG_STATSD_MOGRIFIER_BAD_NAME", ""),
        ("DOG_STATSD_MOGRIFIER_TAGS_PATTERN", "a"),
        ("DOG_STATSD_MOGRIFIER_TAGS_NAME", "b"),
        ("DOG_STATSD_MOGRIFIER_TAGS_TAGS", "k:"),
        ("DOG_STATSD_MOGRIFIER_OPEN_PATTERN", "a{10000}{10000}"),
        ("DOG_STATSD_MOGRIFIER_OPEN_NAME", "b"),
        ("DOG_STATSD_MOGRIFIER_OPEN_TAGS", "k"),
        ("DOG_STATSD_MOGRIFIER_LETTERS_PATTERN", r"^\pL+\."),
        ("DOG_STATSD_MOGRIFIER_LETTERS_NAME", "b"),
    ])
    .unwrap_err();
    for told in [
        "7 settings are wrong\n",
        "DOG_STATSD_MOGRIFIER_NONE_PATTERN: expected a regular expression",
        "DOG_STATSD_MOGRIFIER_BAD_PATTERN='(': not a regular expression",
        "DOG_STATSD_MOGRIFIER_BAD_NAME: expected the new name",
        "DOG_STATSD_MOGRIFIER_TAGS_TAGS='k:': every tag needs a name and a value",
        "DOG_STATSD_MOGRIFIER_OPEN_PATTERN='a{10000}{10000}': not a regular expression",
        "DOG_STATSD_MOGRIFIER_OPEN_TAGS='k': expected pairs",
        r"DOG_STATSD_MOGRIFIER_LETTERS_PATTERN='^\pL+\.': classes of Unicode (\p and \P) are not supported: write the letters",
    ] {
        assert!(error.contains(told), "{told} in {error}");
    }
}
