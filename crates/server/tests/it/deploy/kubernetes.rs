//! The plain manifests, and what can be said of the chart without Helm.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{deploy, longest_end, peer, succeed, yaml};
use crate::operate::process::Process;
use crate::support::{get, post, repository};
use crate::workflows::redis;

fn find<'m>(manifests: &'m [Value], kind: &str) -> &'m Value {
    manifests
        .iter()
        .find(|manifest| manifest["kind"] == kind)
        .unwrap_or_else(|| panic!("no {kind}"))
}

fn texts<'v>(list: &'v Value, field: &str) -> Vec<&'v str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|item| item[field].as_str().unwrap())
        .collect()
}

#[test]
fn manifests_are_of_the_schemas_of_kubernetes() {
    let mut check = peer("bin/kubernetes-validate");
    check
        .args(["--strict", "--quiet"])
        .args(["tidegate.yaml", "redis.yaml"].map(|file| deploy("k8s").join(file)));
    assert_eq!(succeed(&mut check), "");
}

#[test]
fn pods_may_do_no_more_than_they_need() {
    for file in ["tidegate.yaml", "redis.yaml"] {
        let manifests = yaml(&deploy("k8s").join(file));
        let pod = &find(&manifests, "Deployment")["spec"]["template"]["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        assert_eq!(pod["automountServiceAccountToken"], false);
        let container = &pod["containers"][0];
        let context = &container["securityContext"];
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["capabilities"]["drop"][0], "ALL");
        assert!(
            container["resources"]["limits"]["memory"].is_string(),
            "{container}"
        );
    }
}

#[test]
fn ports_probes_and_times_fit_the_server() {
    let manifests = yaml(&deploy("k8s/tidegate.yaml"));
    let pod = &find(&manifests, "Deployment")["spec"]["template"]["spec"];
    let grace = Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().unwrap());
    assert!(grace > longest_end(), "{grace:?} and {:?}", longest_end());
    assert_eq!(
        pod["enableServiceLinks"], false,
        "variables of a Service named tidegate are no settings"
    );
    let container = &pod["containers"][0];
    let ports: Vec<(&str, u64)> = texts(&container["ports"], "name")
        .into_iter()
        .zip(
            container["ports"]
                .as_array()
                .unwrap()
                .iter()
                .map(|port| port["containerPort"].as_u64().unwrap()),
        )
        .collect();
    assert_eq!(
        ports,
        [
            ("grpc", 8081),
            ("http", 8080),
            ("debug", 6070),
            ("metrics", 9090)
        ]
    );
    for (probe, path, port) in [
        ("startupProbe", "/healthcheck", "http"),
        ("readinessProbe", "/healthcheck", "http"),
        ("livenessProbe", "/", "debug"),
    ] {
        assert_eq!(
            container[probe]["httpGet"],
            serde_json::json!({ "path": path, "port": port }),
            "{probe}"
        );
    }
    let service = &find(&manifests, "Service")["spec"];
    let (labels, selector) = (
        &find(&manifests, "Deployment")["spec"]["template"]["metadata"]["labels"],
        &service["selector"],
    );
    assert_eq!(labels, selector);
    let known: BTreeSet<&str> = ports.iter().map(|(name, _)| *name).collect();
    assert!(
        texts(&service["ports"], "targetPort")
            .iter()
            .all(|port| known.contains(port))
    );
}

/// The folder of a ConfigMap as Kubernetes mounts it: files are links into a folder that is a link itself.
fn mount(data: &Value, at: &Path) {
    std::fs::create_dir_all(at.join("..2026_11_23")).unwrap();
    std::os::unix::fs::symlink("..2026_11_23", at.join("..data")).unwrap();
    for (name, text) in data.as_object().unwrap() {
        std::fs::write(at.join("..data").join(name), text.as_str().unwrap()).unwrap();
        std::os::unix::fs::symlink(Path::new("..data").join(name), at.join(name)).unwrap();
    }
}

#[test]
fn the_server_starts_with_the_variables_and_files_of_the_manifest() {
    let manifests = yaml(&deploy("k8s/tidegate.yaml"));
    let container = &find(&manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let (root, redis) = (tempfile::tempdir().unwrap(), redis());
    let place = root.path().to_str().unwrap();
    let mounted = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    mount(
        &find(&manifests, "ConfigMap")["data"],
        Path::new(&format!("{place}{mounted}")),
    );
    let variables = container["env"].as_array().unwrap().iter().map(|variable| {
        let (name, value) = (
            variable["name"].as_str().unwrap(),
            variable["value"].as_str().unwrap(),
        );
        // What is elsewhere here: folders, ports, and Redis.
        let value = match name {
            "RUNTIME_ROOT" => format!("{place}{value}"),
            "REDIS_URL" => redis.address().to_string(),
            "PROMETHEUS_ADDR" => "127.0.0.1:0".to_owned(),
            _ => value.to_owned(),
        };
        (name.to_owned(), value)
    });
    let settings: Vec<(String, String)> = variables.collect();
    let settings: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let server = Process::start(&settings);
    let http = server.address("HTTP");
    assert_eq!(get(http, "/healthcheck").body, "OK");
    assert_eq!(get(server.address("debug"), "/").status, 200);
    let ask = || {
        post(
            http,
            "/json",
            r#"{"domain":"example","descriptors":[{"entries":[{"key":"user","value":"ada"}]}]}"#,
        )
    };
    assert!(
        (0..30).any(|_| ask().status == 429),
        "the limit of the ConfigMap is in force"
    );
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));
}

/// What templates take must be in values.yaml, and variables must be settings: Helm says nothing of either.
#[test]
fn the_chart_takes_values_that_exist_and_sets_variables_that_exist() {
    let values = &yaml(&deploy("helm/tidegate/values.yaml"))[0];
    let settings = std::fs::read_to_string(repository().join("docs/settings.md")).unwrap();
    let mut taken = 0;
    for entry in std::fs::read_dir(deploy("helm/tidegate/templates")).unwrap() {
        let template = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for rest in template.split(".Values.").skip(1) {
            let path: String = rest
                .chars()
                .take_while(|letter| letter.is_alphanumeric() || *letter == '.')
                .collect();
            let pointer = format!("/{}", path.trim_end_matches('.').replace('.', "/"));
            assert!(
                values.pointer(&pointer).is_some(),
                "values.yaml has no {path}"
            );
            taken += 1;
        }
        for rest in template.split("name: ").skip(1) {
            let name: String = rest
                .chars()
                .take_while(|letter| letter.is_ascii_uppercase() || *letter == '_')
                .collect();
            assert!(
                name.len() < 4 || settings.contains(&format!("`{name}`")),
                "{name} is no setting"
            );
        }
    }
    assert!(taken > 60, "{taken}");
}
