//! The root folder of the container image: what is in it, and that the server runs there as another user who may not write.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::succeed;
use crate::operate::process::Process;
use crate::support::{LIMITS, ask, channel, get, repository, request};
use crate::workflows::redis;

/// The user of the image.
const USER: u32 = 65_532;

/// What `scripts/image-root` makes of the binary of this build.
fn image() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let mut make = Command::new(repository().join("scripts/image-root"));
    succeed(make.arg(root.path()).arg(env!("CARGO_BIN_EXE_tidegate")));
    // Others than its owner may enter a folder of the system for temporary files only when they are told so.
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    root
}

/// A command that runs a program of the image in that folder, where nothing can be written, as the user of the image.
fn within(root: &Path, program: &str) -> Command {
    const RUN: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && user=$1 && shift && exec chroot $user \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        command.args([
            "--user",
            &format!("--map-user={USER}"),
            &format!("--map-group={USER}"),
            "--keep-caps",
        ]);
    }
    let user = if is_root {
        format!("--userspec={USER}:{USER}")
    } else {
        String::new()
    };
    command
        .args(["--mount", "/bin/sh", "-c", RUN])
        .arg(root)
        .args([user.as_str(), program]);
    command
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
    {
        if entry.file_type().unwrap().is_dir() {
            files(&entry.path(), found)
        } else {
            found.push(entry.path())
        }
    }
}

#[test]
fn the_image_has_one_program_and_no_shell() {
    let root = image();
    let mut found = Vec::new();
    files(root.path(), &mut found);
    let is_library = |path: &Path| path.to_str().unwrap().contains(".so");
    let mut names: Vec<String> = found
        .iter()
        .filter(|path| !is_library(path))
        .map(|path| {
            path.strip_prefix(root.path())
                .unwrap()
                .display()
                .to_string()
        })
        .collect();
    names.sort_unstable();
    let certificates = "etc/ssl/certs/ca-certificates.crt";
    let programs = [
        "bin/ratelimit",
        "bin/ratelimit_client",
        "bin/ratelimit_config_check",
        "bin/tidegate",
    ];
    let texts = ["etc/group", "etc/nsswitch.conf", "etc/passwd", certificates];
    assert_eq!(names, [&["LICENSE"][..], &programs, &texts].concat());
    for name in &programs[..3] {
        assert_eq!(
            std::fs::read_link(root.path().join(name)).unwrap(),
            Path::new("tidegate")
        );
    }
    for path in found {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!(
            metadata.mtime(),
            0,
            "{}: images of one program are equal",
            path.display()
        );
        assert!(
            metadata.is_symlink() || metadata.mode() & 0o6022 == 0,
            "{}: {:o}",
            path.display(),
            metadata.mode()
        );
    }
}

#[test]
fn the_dockerfile_makes_what_is_tried_here() {
    let text = std::fs::read_to_string(repository().join("deploy/container/Dockerfile")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for line in [
        "    scripts/image-root /root-of-image",
        "FROM scratch AS image",
        "FROM image AS ratelimit",
        "ENTRYPOINT [\"/bin/ratelimit\"]",
        "COPY --from=build /root-of-image/ /",
        &format!("USER {USER}:{USER}"),
        "ENTRYPOINT [\"/bin/tidegate\"]",
        &format!("ARG VERSION={version}"),
        &format!("ARG RUST_VERSION={}", env!("CARGO_PKG_RUST_VERSION")),
    ] {
        assert!(text.lines().any(|other| other == line), "no line `{line}`");
    }
    let last = text.rsplit("\nFROM ").next().unwrap();
    assert_eq!(
        last, "image AS tidegate\nENTRYPOINT [\"/bin/tidegate\"]\n",
        "what is built when no target is named"
    );
    assert!(text.contains("CMD [\"/bin/tidegate\", \"health\"]"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_image_serves_as_another_user_without_writing() {
    let root = image();
    let redis = tokio::task::spawn_blocking(redis).await.unwrap();
    let limits = root.path().join("data/ratelimit/config");
    std::fs::create_dir_all(&limits).unwrap();
    std::fs::write(limits.join("limits.yaml"), LIMITS).unwrap();
    // Kubernetes and Docker put this file there.
    std::fs::write(root.path().join("etc/hosts"), "127.0.0.1 redis.test\n").unwrap();
    let url = format!("redis.test:{}", redis.port());
    let settings = [
        ("REDIS_URL", url.as_str()),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("USE_STATSD", "false"),
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
    ];
    // An entry point of that name, and the same name as a command: so is the sample of the reference for Docker.
    for words in [
        &["/bin/tidegate"][..],
        &["/bin/ratelimit"],
        &["/bin/ratelimit", "/bin/ratelimit"],
    ] {
        let program = words.join(" ");
        let mut command = within(root.path(), words[0]);
        command.args(&words[1..]);
        let server = Process::start_by(command, &settings);
        assert_eq!(server.effective_user(), USER, "{program}");
        assert_eq!(get(server.address("HTTP"), "/healthcheck").body, "OK");
        let channel = channel(server.address("gRPC")).await;
        let answer = ask(&channel, request("shop", &[&[("user", &program)]]))
            .await
            .unwrap();
        assert_eq!(answer.statuses[0].limit_remaining, 2);
        server.signal("TERM");
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
    }
}
