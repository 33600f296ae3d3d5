//! The examples for Envoy Gateway and Istio, and the mirror of the migration.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate_ratelimit::{Configuration, SameDomain, Source};

use super::{certificates, peer, succeed, yaml};
use crate::support::repository;

fn example(path: &str) -> PathBuf {
    repository().join("examples").join(path)
}

fn named<'m>(manifests: &'m [Value], kind: &str, name: &str) -> &'m Value {
    let is_it =
        |manifest: &&Value| manifest["kind"] == kind && manifest["metadata"]["name"] == name;
    manifests
        .iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn examples_are_of_the_schemas_of_kubernetes() {
    let mut check = peer("bin/kubernetes-validate");
    check
        .args(["--strict", "--quiet"])
        .args(["envoy-gateway/shadow.yaml", "istio/tidegate.yaml"].map(example));
    assert_eq!(succeed(&mut check), "");
    // What is of no schema there is at least YAML.
    for file in [
        "envoy-gateway/envoy-gateway.yaml",
        "envoy-gateway/patch.yaml",
        "istio/envoyfilter.yaml",
    ] {
        assert!(
            yaml(&example(file))
                .iter()
                .all(|manifest| manifest["kind"].is_string()),
            "{file}"
        );
    }
}

fn assert_envoy_accepts(configuration: &Path) {
    let told = succeed(
        peer("envoy")
            .args(["--mode", "validate", "-c"])
            .arg(configuration),
    );
    assert!(told.contains("OK"), "{told}");
}

#[test]
fn envoy_accepts_the_mirrors() {
    assert_envoy_accepts(&example("migration/mirror.yaml"));
    // That of Envoy Gateway reads certificates.
    let folder = certificates(&["envoy-ratelimit"]);
    let manifests = yaml(&example("envoy-gateway/shadow.yaml"));
    let text = named(&manifests, "ConfigMap", "ratelimit-mirror")["data"]["envoy.yaml"]
        .as_str()
        .unwrap();
    let configuration = folder.path().join("envoy.yaml");
    std::fs::write(
        &configuration,
        text.replace("/certs", folder.path().to_str().unwrap()),
    )
    .unwrap();
    assert_envoy_accepts(&configuration);
}

#[test]
fn variables_of_the_examples_are_settings() {
    let settings = std::fs::read_to_string(repository().join("docs/settings.md")).unwrap();
    for (file, name) in [
        ("envoy-gateway/shadow.yaml", "tidegate-shadow"),
        ("istio/tidegate.yaml", "ratelimit"),
    ] {
        let manifests = yaml(&example(file));
        let container =
            &named(&manifests, "Deployment", name)["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["command"], serde_json::json!(["/bin/ratelimit"]));
        for variable in container["env"].as_array().unwrap() {
            let name = variable["name"].as_str().unwrap();
            assert!(settings.contains(&format!("`{name}`")), "{file}: {name}");
        }
    }
}

/// The shadow lacked the mapping of Envoy Gateway, so that the names of its limits were not those of the reference beside it.
#[test]
fn the_shadow_has_every_file_that_its_variables_name() {
    let manifests = yaml(&example("envoy-gateway/shadow.yaml"));
    let pod = &named(&manifests, "Deployment", "tidegate-shadow")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let texts = |list: &Value, name: &str| -> Vec<String> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|item| item[name].as_str().unwrap().to_owned())
            .collect()
    };
    let mounts = &container["volumeMounts"];
    assert_eq!(texts(mounts, "name"), texts(&pod["volumes"], "name"));
    let folders = texts(mounts, "mountPath");
    let mut files = 0;
    for variable in container["env"].as_array().unwrap() {
        let value = variable["value"].as_str().unwrap();
        // Limits come over xDS, so nobody reads RUNTIME_ROOT.
        if value.starts_with('/') && variable["name"] != "RUNTIME_ROOT" {
            files += 1;
            assert!(
                folders.iter().any(|folder| value.starts_with(folder)),
                "{variable}"
            );
        }
    }
    assert_eq!(files, 6, "five certificates and keys, and the mapping");
}

#[test]
fn the_limits_of_the_example_for_istio_load() {
    let manifests = yaml(&example("istio/tidegate.yaml"));
    let data = named(&manifests, "ConfigMap", "ratelimit-config")["data"]
        .as_object()
        .unwrap();
    let source = |(name, text): (&String, &Value)| Source {
        name: name.clone(),
        text: text.as_str().unwrap().into(),
    };
    let sources: Vec<Source> = data.iter().map(source).collect();
    assert_eq!(
        Configuration::load(&sources, SameDomain::Refuse)
            .unwrap()
            .domain_count(),
        1
    );
}
