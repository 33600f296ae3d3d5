//! Writes the generated code of the server from the Envoy API that the package envoy-types carries.
//!
//! `rls/gen` has the rate limit service: the complete descriptor set, for reflection, a set pruned to what the service needs,
//! for JSON, and Rust code of the latter. `rls/reload/xds/gen` has the messages of a management server. No .proto file and no
//! comment of one is copied.

mod prune;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use prost::Message;
use prost_types::FileDescriptorSet;
use protox::Compiler;
use protox::file::{ChainFileResolver, GoogleFileResolver, IncludeFileResolver};
use prune::{Selection, prune};

const PACKAGE: &str = "envoy-types";
const INCLUDES: [&str; 5] = ["data-plane-api", "protoc-gen-validate", "xds", "googleapis", "ratelimit"];

const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";
const RATE_LIMITS: Selection<'_> =
    Selection { service: Some(".envoy.service.ratelimit.v3.RateLimitService"), messages: &[], fields: &[] };

const CONFIGURATION: [&str; 2] =
    ["envoy/service/discovery/v3/discovery.proto", "api/ratelimit/config/ratelimit/v3/rls_conf.proto"];
const RESOURCES: Selection<'_> = Selection {
    service: None,
    messages: &[
        ".envoy.service.discovery.v3.DiscoveryRequest",
        ".envoy.service.discovery.v3.DiscoveryResponse",
        ".ratelimit.config.ratelimit.v3.RateLimitConfig",
    ],
    // Fields that are never set and never read are not decoded.
    fields: &[
        (".envoy.config.core.v3.Node", &["id", "metadata", "user_agent_name"]),
        (
            ".envoy.service.discovery.v3.DiscoveryRequest",
            &["version_info", "node", "resource_names", "type_url", "response_nonce", "error_detail"],
        ),
        (".envoy.service.discovery.v3.DiscoveryResponse", &["version_info", "resources", "type_url", "nonce"]),
    ],
};

fn main() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = package_directory(&here.join("Cargo.toml"))?.join("proto");

    let out = folder(here, "rls/gen")?;
    let compiler = compile(&sources, &[SERVICE])?;
    write(&out.join("complete.bin"), &compiler.encode_file_descriptor_set())?;
    let set = prune(compiler.file_descriptor_set(), &RATE_LIMITS)?;
    write(&out.join("service.bin"), &set.encode_to_vec())?;
    generate(set, &out)?;

    let out = folder(here, "rls/reload/xds/gen")?;
    let compiler = compile(&sources, &CONFIGURATION)?;
    generate(prune(compiler.file_descriptor_set(), &RESOURCES)?, &out)
}

fn folder(here: &Path, name: &str) -> Result<PathBuf> {
    let out = here.join("../crates/server/src").join(name);
    std::fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    Ok(out)
}

fn compile(sources: &Path, entries: &[&str]) -> Result<Compiler> {
    let mut resolver = ChainFileResolver::new();
    for include in INCLUDES {
        resolver.add(IncludeFileResolver::new(sources.join(include)));
    }
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(false);
    for entry in entries {
        compiler.open_file(entry).with_context(|| format!("compiling {entry}"))?;
    }
    Ok(compiler)
}

/// Messages only: the server has codecs of its own, and the client one call.
fn generate(set: FileDescriptorSet, out: &Path) -> Result<()> {
    tonic_prost_build::configure()
        .build_client(false)
        .build_server(false)
        .build_transport(false)
        .disable_comments(["."])
        .emit_rerun_if_changed(false)
        .out_dir(out)
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
