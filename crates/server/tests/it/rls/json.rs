//! The HTTP and debug ports.

use serde_json::{Value, json};

use crate::support::{Server, get, http, http_with, post};

fn body(user: &str) -> String {
    json!({"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": user}]}]})
        .to_string()
}

#[test]
fn json_says_it_all_with_the_status_code() {
    let server = Server::start(&[]);
    for (remaining, status, code) in [
        (2, 200, "OK"),
        (1, 200, "OK"),
        (0, 200, "OK"),
        (0, 429, "OVER_LIMIT"),
    ] {
        let answer = post(server.http(), "/json", &body("ada"));
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, Some("application/json"))
        );
        let json: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(json["overallCode"], code);
        let status = &json["statuses"][0];
        assert_eq!(
            status["currentLimit"],
            json!({"requestsPerUnit": 3, "unit": "HOUR"})
        );
        // Default values are left out, as the protobuf mapping does.
        assert_eq!(
            status.get("limitRemaining").cloned(),
            (remaining > 0).then(|| json!(remaining))
        );
        assert!(
            status["durationUntilReset"]
                .as_str()
                .unwrap()
                .ends_with('s')
        );
    }
    assert_eq!(
        server.stat("ratelimit_server.ShouldRateLimit.total_requests"),
        0,
        "only gRPC calls are counted there"
    );
    assert_eq!(
        server.stat("ratelimit.service.rate_limit.shop.user.over_limit"),
        1
    );
}

#[test]
fn whole_numbers_of_metadata_are_written_as_in_the_reference() {
    let server = Server::start(&[("RESPONSE_DYNAMIC_METADATA", "true")]);
    let text = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"x"}],"hitsAddend":7}],"hitsAddend":4}"#;
    let body = post(server.http(), "/json", text).body;
    assert!(
        body.contains(r#""hitsAddend":4"#) && body.contains(r#""hitsAddend":7"#),
        "{body}"
    );
    assert!(!body.contains(".0"), "{body}");
}

#[test]
fn json_takes_every_form_that_the_mapping_allows() {
    let server = Server::start(&[]);
    for text in [
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"named","value":"a"}],"hitsAddend":"2"}]}"#,
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"named","value":"a"}],"hits_addend":2}]}"#,
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"named","value":"a"}],"hitsAddend":"1e0"}],"hitsAddend":"1.0"}"#,
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"named","value":null}]}],"hitsAddend":null}"#,
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"x"}],"limit":{"requestsPerUnit":9,"unit":"DAY"}}]}"#,
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"x"}],"limit":{"requests_per_unit":9,"unit":4}}],"hitsAddend":1}"#,
    ] {
        assert_eq!(post(server.http(), "/json", text).status, 200, "{text}");
    }
    assert_eq!(
        http(server.http(), "PUT", "/json", body("put").as_bytes()).status,
        200,
        "any method will do"
    );
}

#[test]
fn json_with_more_descriptors_than_allowed_is_refused_before_it_is_decoded() {
    let server = Server::start(&[("TIDEGATE_MAX_DESCRIPTORS", "5")]);
    let descriptors = |number| json!({"domain": "shop", "descriptors": vec![json!({"entries": [{"key": "a"}]}); number]});
    assert_eq!(
        post(server.http(), "/json", &descriptors(5).to_string()).status,
        200
    );
    let answer = post(server.http(), "/json", &descriptors(6).to_string());
    let told = "the request has more than 5 descriptors: send fewer at a time, or raise TIDEGATE_MAX_DESCRIPTORS\n";
    assert_eq!((answer.status, answer.body.as_str()), (400, told));
    // What follows is not JSON, which nobody looks at.
    let endless = format!("{{\"descriptors\":[{}", "{},".repeat(1_000_000));
    assert_eq!(post(server.http(), "/json", &endless).body, told);
    assert_eq!(
        server.stat("ratelimit.service.call.should_rate_limit.service_error"),
        2
    );
}

#[test]
fn json_answers_400_to_everything_else() {
    let server = Server::start(&[]);
    for text in [
        "",
        "{",
        "[]",
        "null",
        "text",
        r#"{"domain":"shop","nothing":1}"#,
        r#"{"domain":"shop","domain":"shop","descriptors":[{"entries":[{"key":"user"}]}]}"#,
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user"}]}],"hitsAddend":1,"hits_addend":1}"#,
        r#"{"domain":"","descriptors":[{"entries":[{"key":"user"}]}]}"#,
        r#"{"domain":"shop"}"#,
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user"}],"limit":{"requestsPerUnit":1}}]}"#,
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user"}],"hitsAddend":"18446744073709551616"}]}"#,
        &(body("x") + "{}"),
    ] {
        let answer = post(server.http(), "/json", text);
        let shown = &text[..text.len().min(100)];
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (400, "Bad Request\n"),
            "{shown}"
        );
        assert_eq!(
            answer.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    assert_eq!(
        server.stat("ratelimit.service.call.should_rate_limit.service_error"),
        3
    );
}

/// All of it was "Bad Request", so nobody learned which bound was met.
#[test]
fn json_that_is_not_read_is_refused_with_the_reason() {
    let server = Server::start(&[]);
    let answer = post(
        server.http(),
        "/json",
        &format!("{}{}", body("large"), " ".repeat(4 << 20)),
    );
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (413, "the body has more than 4194304 bytes\n")
    );
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let encoded = |encoding| {
        let headers = [("host", "test"), ("content-encoding", encoding)];
        http_with(
            server.http(),
            "POST",
            "/json",
            &headers,
            body("x").as_bytes(),
        )
    };
    let answer = encoded("gzip");
    let told = "send the body without Content-Encoding: it is not decoded\n";
    assert_eq!((answer.status, answer.body.as_str()), (415, told));
    assert_eq!(encoded("identity").status, 200);
}

#[test]
fn other_paths_are_not_found() {
    let server = Server::start(&[]);
    let answer = get(server.http(), "/");
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (404, "404 page not found\n")
    );
    assert_eq!(
        answer.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(http(server.http(), "POST", "/healthcheck", b"").body, "OK");
}

#[test]
fn debug_pages_tell_the_configuration_and_the_counters() {
    let server = Server::start(&[]);
    let dump = get(server.debug(), "/rlconfig").body;
    assert!(
        dump.contains(
            "shop.user: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: false\n"
        ),
        "{dump}"
    );
    let stats = get(server.debug(), "/stats").body;
    assert!(
        stats.contains("\nratelimit.service.rate_limit.shop.plan_gold.user.total_hits: 0\n"),
        "{stats}"
    );
    assert!(stats.lines().is_sorted(), "{stats}");
    for path in ["/", "/nothing"] {
        let index = get(server.debug(), path);
        assert_eq!(
            (index.status, index.body.lines().count()),
            (200, 6),
            "{index:?}"
        );
        assert!(index.body.lines().is_sorted());
    }
}
