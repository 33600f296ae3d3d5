//! Metrics by a mapping file.

use std::io::Write as _;

use tidegate::settings::Settings;

use crate::support::{Server, ask, get, request, variables};

/// Globs, a regular expression and a rule that drops the rest, as Envoy Gateway has them.
const RULES: &str = r#"
mappings:
  - match: "ratelimit.service.rate_limit.*.*.over_limit"
    name: "limits_over"
    timer_type: "histogram"
    labels: {domain: "$1", key1: "$2"}
  - match: "ratelimit.service.rate_limit.*.*.*.over_limit"
    name: "limits_over"
    labels: {domain: "$1", key1: "$2", key2: "$3"}
  - match: "^ratelimit\\.service\\.rate_limit\\.(?P<domain>[^.]+)\\.(.+)\\.total_hits$"
    match_type: regex
    name: "hits_${1}"
    help: "Hits."
    scale: 0.5
    labels: {path: "$2", who: "$domain"}
  - match: "ratelimit_server.*.total_requests"
    name: "calls"
    match_metric_type: counter
    labels: {method: "$1", app: "mine"}
  - match: "ratelimit_server.*.response_time"
    name: "times_seconds"
    observer_type: histogram
    scale: 0.001
    buckets: [0.5, 30]
    labels: {method: "$1"}
  - match: "runtime.num_values"
    name: "never"
    match_metric_type: counter
  - match: "."
    match_type: "regex"
    action: "drop"
    name: "dropped"
"#;

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn start(rules: &str, more: &[(&str, &str)]) -> Server {
    let file = file(rules);
    let own = [
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", "127.0.0.1:0"),
        ("PROMETHEUS_MAPPER_YAML", file.path().to_str().unwrap()),
    ];
    Server::start(&[&own[..], more].concat())
}

/// The lines of a page, without those of the server's own names.
fn mapped(server: &Server) -> Vec<String> {
    let page = get(server.started.addresses.prometheus.unwrap(), "/metrics").body;
    let own = |line: &&str| line.contains("tidegate_") || line.contains("process_");
    page.lines()
        .filter(|line| !own(line))
        .map(str::to_owned)
        .collect()
}

async fn hit(server: &Server) {
    let channel = server.channel().await;
    for _ in 0..4 {
        ask(
            &channel,
            request(
                "shop",
                &[&[("user", "ada")], &[("plan", "gold"), ("user", "ada")]],
            ),
        )
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_mapping_file_gives_names_and_labels() {
    let server = start(RULES, &[("EXTRA_TAGS", "zone:eu,app:theirs")]);
    hit(&server).await;
    let lines = mapped(&server);
    for expected in [
        r#"# TYPE limits_over counter"#,
        r#"limits_over{app="theirs",domain="shop",key1="user",zone="eu"} 1"#,
        r#"limits_over{app="theirs",domain="shop",key1="named",zone="eu"} 0"#,
        r#"limits_over{app="theirs",domain="shop",key1="plan_gold",key2="user",zone="eu"} 2"#,
        r#"# HELP hits_shop Hits."#,
        r#"hits_shop{app="theirs",path="plan_gold.user",who="shop",zone="eu"} 2"#,
        r#"calls{app="mine",method="ShouldRateLimit",zone="eu"} 4"#,
        r#"# TYPE times_seconds histogram"#,
        r#"times_seconds_bucket{app="theirs",method="ShouldRateLimit",zone="eu",le="30"} 4"#,
        r#"times_seconds_bucket{app="theirs",method="ShouldRateLimit",zone="eu",le="+Inf"} 4"#,
        r#"times_seconds_count{app="theirs",method="ShouldRateLimit",zone="eu"} 4"#,
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected} in\n{}",
            lines.join("\n")
        );
    }
    let names: std::collections::BTreeSet<_> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        ["calls", "hits_shop", "limits_over", "times_seconds"]
    );
    let all = get(server.debug(), "/metrics").body;
    assert!(
        all.contains("\ntidegate_build_info") && all.contains("\nprocess_threads"),
        "own names are not dropped"
    );
    assert!(all.contains("\ntidegate_memory_keys"), "{all}");
    // What is remembered gives the same page.
    assert_eq!(mapped(&server), lines);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn names_without_a_rule_keep_their_own_and_times_are_a_summary() {
    let server = start("mappings: []", &[]);
    hit(&server).await;
    let lines = mapped(&server);
    for expected in [
        "ratelimit_service_rate_limit_shop_user_over_limit 1",
        "ratelimit_service_config_load_success 1",
        "runtime_num_values 1",
        "# TYPE ratelimit_server_ShouldRateLimit_response_time summary",
        "ratelimit_server_ShouldRateLimit_response_time_count 4",
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected} in\n{}",
            lines.join("\n")
        );
    }
    let median = r#"ratelimit_server_ShouldRateLimit_response_time{quantile="0.5"} "#;
    let median = lines
        .iter()
        .find_map(|line| line.strip_prefix(median))
        .unwrap();
    assert!(median.parse::<f64>().unwrap() < 20_000.0, "{median}");
}

/// Rules as Envoy Gateway mounts them: globs for one and two keys, a summary of nothing, and the rest dropped.
fn rules_of_envoy_gateway() -> String {
    let suffixes = ["near_limit", "over_limit", "total_hits", "within_limit"];
    let limit = |keys: &str, labels: &str, suffix: &str| {
        format!(
            "  - match: \"ratelimit.service.rate_limit.{keys}.{suffix}\"\n    name: \"ratelimit_service_rate_limit_{suffix}\"\n    \
             timer_type: \"histogram\"\n    labels: {labels}\n"
        )
    };
    let one = suffixes.map(|suffix| limit("*.*", r#"{domain: "$1", key1: "$2"}"#, suffix));
    let two =
        suffixes.map(|suffix| limit("*.*.*", r#"{domain: "$1", key1: "$2", key2: "$3"}"#, suffix));
    let calls = r#"
  - match: "ratelimit.service.call.should_rate_limit.*"
    name: "ratelimit_service_should_rate_limit_error"
    match_metric_type: counter
    labels: {err_type: "$1"}
  - match: "ratelimit_server.*.total_requests"
    name: "ratelimit_service_total_requests"
    match_metric_type: counter
    labels: {grpc_method: "$1"}
  - match: "ratelimit_server.*.response_time"
    name: "ratelimit_service_response_time_seconds"
    timer_type: histogram
    labels: {grpc_method: "$1"}
  - match: "ratelimit.service.config_load_success"
    name: "ratelimit_service_config_load_success"
    match_metric_type: counter
  - match: "."
    match_type: "regex"
    action: "drop"
    name: "dropped"
"#;
    format!("mappings:\n{}{}{calls}", one.concat(), two.concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_mapping_of_envoy_gateway_gives_the_names_of_its_dashboards() {
    let server = start(
        &rules_of_envoy_gateway(),
        &[("LOCAL_CACHE_SIZE_IN_BYTES", "1000000")],
    );
    hit(&server).await;
    let lines = mapped(&server);
    for expected in [
        r#"ratelimit_service_rate_limit_total_hits{domain="shop",key1="user"} 4"#,
        r#"ratelimit_service_rate_limit_over_limit{domain="shop",key1="user"} 1"#,
        r#"ratelimit_service_rate_limit_within_limit{domain="shop",key1="user"} 3"#,
        r#"ratelimit_service_rate_limit_near_limit{domain="shop",key1="user"} 1"#,
        r#"ratelimit_service_rate_limit_over_limit{domain="shop",key1="plan_gold",key2="user"} 2"#,
        r#"ratelimit_service_should_rate_limit_error{err_type="redis_error"} 0"#,
        r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 4"#,
        r#"ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="+Inf"} 4"#,
        r#"ratelimit_service_config_load_success 1"#,
    ] {
        assert!(
            lines.iter().any(|line| line == expected),
            "{expected} in\n{}",
            lines.join("\n")
        );
    }
    // What has no rule is dropped, and is not counted under another name.
    assert!(
        !lines
            .iter()
            .any(|line| line.contains("local_cache") || line.contains("runtime")),
        "{}",
        lines.join("\n")
    );
}

#[test]
fn a_mapping_file_with_mistakes_ends_the_start() {
    let parse = |path: &str, more: &[(&str, &str)]| {
        let own = [("USE_PROMETHEUS", "true"), ("PROMETHEUS_MAPPER_YAML", path)];
        let variables = variables(&[&own[..], more].concat());
        Settings::parse(&variables.into_iter().collect()).map(|settings| settings.warnings)
    };
    let bad = file("mappings:\n  - match: a\n    nmae: b\n");
    let path = bad.path().to_str().unwrap();
    let error = parse(path, &[]).unwrap_err().to_string();
    assert!(
        error.contains("PROMETHEUS_MAPPER_YAML=")
            && error.contains("3:5: there is no such field 'nmae'"),
        "{error}"
    );
    assert!(
        parse("/none.yaml", &[])
            .unwrap_err()
            .to_string()
            .contains("cannot read the file")
    );
    let open = file("mappings: [");
    assert!(parse(open.path().to_str().unwrap(), &[]).is_err());
    // Without the port for Prometheus nobody asks for the file.
    assert!(parse(path, &[("DISABLE_STATS", "true")]).is_ok());
    let ttl = file("defaults: {ttl: 5m}\nmappings: [{match: a, name: b}]\n");
    let warnings = parse(ttl.path().to_str().unwrap(), &[]).unwrap();
    assert!(
        warnings
            .iter()
            .any(|warning| warning.ends_with("ttl have no effect")),
        "{warnings:?}"
    );
}
