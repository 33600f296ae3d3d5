//! Writes crates/server/src/rls/gen/ from the Envoy API that the package envoy-types carries.
//!
//! The complete descriptor set goes to a file, for reflection. A set pruned to what the rate limit service needs goes to
//! another, for JSON, and the Rust code is generated from it. No .proto file and no comment of one is copied.

mod prune;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use prost::Message;
use protox::file::{ChainFileResolver, GoogleFileResolver, IncludeFileResolver};

const PACKAGE: &str = "envoy-types";
const ENTRY: &str = "envoy/service/ratelimit/v3/rls.proto";
const SERVICE: &str = ".envoy.service.ratelimit.v3.RateLimitService";
const INCLUDES: [&str; 4] = ["data-plane-api", "protoc-gen-validate", "xds", "googleapis"];

fn main() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = here.join("../crates/server/src/rls/gen");
    std::fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let sources = package_directory(&here.join("Cargo.toml"))?.join("proto");

    let mut resolver = ChainFileResolver::new();
    for include in INCLUDES {
        resolver.add(IncludeFileResolver::new(sources.join(include)));
    }
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(false);
    compiler.open_file(ENTRY).with_context(|| format!("compiling {ENTRY}"))?;

    write(&out.join("complete.bin"), &compiler.encode_file_descriptor_set())?;
    let set = prune::prune(compiler.file_descriptor_set(), SERVICE)?;
    write(&out.join("service.bin"), &set.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(false)
        // The server has one method and a codec of its own.
        .build_server(false)
        .build_transport(false)
        .disable_comments(["."])
        .emit_rerun_if_changed(false)
        .out_dir(&out)
        .compile_fds(set)
        .context("generating Rust code")
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

/// Where cargo keeps the sources of the package with the .proto files.
fn package_directory(manifest: &Path) -> Result<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--manifest-path"])
        .arg(manifest)
        .output()
        .context("running cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    let package = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == PACKAGE)
        .with_context(|| format!("{PACKAGE} is not among the packages of {}", manifest.display()))?;
    let path = package["manifest_path"].as_str().context("cargo metadata names no manifest")?;
    Ok(Path::new(path).parent().context("a manifest is in a directory")?.to_owned())
}
