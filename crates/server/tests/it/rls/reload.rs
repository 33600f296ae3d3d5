//! Configuration files that change while the server runs.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{Limits, Server, await_that, get};

fn limits(requests: u32) -> String {
    format!(
        "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {{unit: hour, requests_per_unit: {requests}}}\n"
    )
}

/// Waits until the limit is `requests`.
#[track_caller]
fn await_limit(server: &Server, requests: u32) {
    let line = format!("shop.user: unit=HOUR requests_per_unit={requests},");
    await_that(&line, || {
        get(server.debug(), "/rlconfig").body.contains(&line)
    });
}

fn start(limits: &Limits) -> Server {
    Server::start_bare(&[("RUNTIME_ROOT", limits.root())])
}

#[test]
fn a_file_written_in_place_is_read_again() {
    let files = Limits::new(&limits(1));
    let server = start(&files);
    await_limit(&server, 1);
    files.write("limits.yaml", &limits(2));
    await_limit(&server, 2);
}

#[test]
fn a_file_renamed_into_place_is_read() {
    let files = Limits::new(&limits(1));
    let server = start(&files);
    let new = Path::new(files.root()).join("new");
    std::fs::write(&new, limits(3)).unwrap();
    std::fs::rename(new, files.folder().join("limits.yaml")).unwrap();
    await_limit(&server, 3);
}

#[test]
fn a_folder_removed_and_made_anew_is_watched_again() {
    let files = Limits::new(&limits(1));
    let server = start(&files);
    std::fs::remove_dir_all(files.folder()).unwrap();
    await_that("no limits are left", || {
        get(server.debug(), "/rlconfig").body.is_empty()
    });
    std::fs::create_dir(files.folder()).unwrap();
    files.write("limits.yaml", &limits(4));
    await_limit(&server, 4);
    files.write("limits.yaml", &limits(5));
    await_limit(&server, 5);
}

/// As Kubernetes updates a mounted ConfigMap: a new folder, a link to it, and the link renamed over the old one.
#[test]
fn a_config_map_that_is_swapped_is_read_again() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("ratelimit/config");
    std::fs::create_dir_all(&folder).unwrap();
    let publish = |version: &str, requests: u32| {
        std::fs::create_dir(folder.join(version)).unwrap();
        std::fs::write(folder.join(version).join("limits.yaml"), limits(requests)).unwrap();
        symlink(version, folder.join("..data_tmp")).unwrap();
        std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    };
    publish("..2024_1", 1);
    symlink("..data/limits.yaml", folder.join("limits.yaml")).unwrap();
    for (watch_root, ignore) in [("false", "true"), ("true", "false")] {
        let server = Server::start_bare(&[
            ("RUNTIME_ROOT", root.path().to_str().unwrap()),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_WATCH_ROOT", watch_root),
            ("RUNTIME_IGNOREDOTFILES", ignore),
        ]);
        await_limit(&server, if watch_root == "true" { 3 } else { 1 });
        publish(&format!("..2024_2{watch_root}"), 2);
        await_limit(&server, 2);
        publish(&format!("..2024_3{watch_root}"), 3);
        await_limit(&server, 3);
        assert_eq!(server.stat("ratelimit.service.config_load_error"), 0);
    }
}

#[test]
fn a_root_that_is_a_link_may_be_moved() {
    let root = tempfile::tempdir().unwrap();
    let current = root.path().join("current");
    for (version, requests) in [("v1", 1), ("v2", 2)] {
        std::fs::create_dir_all(root.path().join(version).join("config")).unwrap();
        std::fs::write(
            root.path().join(version).join("config/limits.yaml"),
            limits(requests),
        )
        .unwrap();
    }
    symlink("v1", &current).unwrap();
    let server = Server::start_bare(&[("RUNTIME_ROOT", current.to_str().unwrap())]);
    await_limit(&server, 1);
    symlink("v2", root.path().join("next")).unwrap();
    std::fs::rename(root.path().join("next"), &current).unwrap();
    await_limit(&server, 2);
    std::fs::write(root.path().join("v2/config/limits.yaml"), limits(7)).unwrap();
    await_limit(&server, 7);
}

#[test]
fn a_bad_file_changes_nothing_but_a_counter() {
    let files = Limits::new(&limits(1));
    let server = start(&files);
    files.write("limits.yaml", &limits(2).replace("hour", "fortnight"));
    await_that("the bad file is noticed", || {
        server.stat("ratelimit.service.config_load_error") == 1
    });
    await_limit(&server, 1);
    files.write("limits.yaml", &limits(2));
    await_limit(&server, 2);
    assert_eq!(server.stat("ratelimit.service.config_load_success"), 2);
}

#[test]
fn a_bad_first_file_does_not_stop_the_start() {
    let files = Limits::new("domain: [");
    let server = start(&files);
    assert_eq!(server.stat("ratelimit.service.config_load_error"), 1);
    let asked = crate::support::post(
        server.http(),
        "/json",
        r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user"}]}]}"#,
    );
    assert_eq!(asked.status, 400, "no rate limit configuration loaded");
    files.write("limits.yaml", &limits(6));
    await_limit(&server, 6);
}

#[test]
fn a_forced_start_takes_what_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("later");
    let server = Server::start_bare(&[
        ("RUNTIME_ROOT", root.to_str().unwrap()),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ]);
    std::fs::create_dir_all(root.join("config")).unwrap();
    std::fs::write(root.join("config/limits.yaml"), limits(8)).unwrap();
    await_limit(&server, 8);
}

#[test]
fn names_in_messages_are_those_of_the_reference() {
    let files = Limits::new(&limits(1));
    files.write("other.yaml", &limits(1));
    for (watch_root, merged) in [("true", "false"), ("false", "true")] {
        let server = Server::start_bare(&[
            ("RUNTIME_ROOT", files.root()),
            ("RUNTIME_WATCH_ROOT", watch_root),
            ("MERGE_DOMAIN_CONFIG", merged),
        ]);
        // Two files of one domain with the same key: an error either way.
        assert_eq!(server.stat("ratelimit.service.config_load_error"), 1);
        assert_eq!(server.stat("runtime.num_values"), 2);
    }
}

/// The domain of a file that could not be read was gone, and its limits with it.
#[test]
fn a_file_that_cannot_be_read_keeps_its_last_text() {
    let files = Limits::new(&limits(1));
    files.write("other.yaml", "domain: other\n");
    let server = start(&files);
    await_limit(&server, 1);
    let failures = server.stat("runtime.load_failures");
    std::fs::remove_file(files.folder().join("limits.yaml")).unwrap();
    symlink("nowhere", files.folder().join("limits.yaml")).unwrap();
    files.write("other.yaml", "domain: another\n");
    await_that("a file is kept", || {
        get(server.debug(), "/stats")
            .body
            .contains("tidegate.config.kept_files: 1\n")
    });
    await_limit(&server, 1);
    let health = get(server.http(), "/healthcheck");
    assert_eq!(health.status, 200);
    assert!(
        health.body.starts_with("OK\n") && health.body.contains("keep their last text: 1"),
        "{health:?}"
    );
    assert!(server.stat("runtime.load_failures") > failures);
    std::fs::remove_file(files.folder().join("limits.yaml")).unwrap();
    await_that("a file that is gone is not kept", || {
        get(server.debug(), "/rlconfig").body.is_empty()
    });
    await_that("none is kept", || {
        server.stat("tidegate.config.kept_files") == 0
    });
    assert_eq!(get(server.http(), "/healthcheck").body, "OK");
}
