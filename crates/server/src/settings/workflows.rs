//! Settings of the API: the store of the workflows, and access to them.

use std::path::PathBuf;

use tidegate_api::{Scope, Tokens};
use tidegate_workflow::{RetentionDefaults, SqliteOptions};

use super::listen::{Endpoint, host_and_port, tls};
use super::memcache;
use super::read::Values;
use super::redis::{self, RedisServer};
use crate::base::file;
use crate::tls::{NamedFile, PortTls, ReloadedFiles, WatchedFiles};

const ADDRESS: &str = "TIDEGATE_HTTP_ADDR";
const ACKNOWLEDGED_BY: &str = "TIDEGATE_ACKNOWLEDGED_BY";
const PARTITIONS: &str = "TIDEGATE_PARTITIONS";
const PREFIX: &str = "TIDEGATE_STORE_PREFIX";
/// Enables the clock that tests control.
const TEST_CLOCK: &str = "TIDEGATE_TEST_CLOCK";
const TOKENS: &str = "TIDEGATE_TOKENS_FILE";
/// Size limit of the file with tokens in bytes: about ten thousand tokens.
const MAX_TOKENS_BYTES: u64 = 1 << 20;

/// The API and its workflows.
#[derive(Debug, Clone)]
pub struct WorkflowSettings {
    /// Address of the API.
    pub address: Endpoint,
    /// Whether the address was set explicitly.
    pub address_given: bool,
    /// TLS of the API. None for plaintext.
    pub tls: Option<PortTls>,
    /// Redis of the workflows. None if they are in a file or in this process.
    pub redis: Option<RedisServer>,
    /// Whether workflows are stored in this process, and end with it: for tests.
    pub in_process: bool,
    /// The parts of the API that are offered. Without a store, these are the limits.
    pub scope: Scope,
    /// Whether tests control the clock. Requires workflows and counters in this process, and a
    /// loopback address.
    pub test_clock: bool,
    /// Prefix of all keys of the workflows in Redis.
    pub prefix: String,
    /// Folder of the SQLite file.
    pub data_dir: PathBuf,
    /// Number of partitions of a new store, a power of two up to 256.
    pub partitions: u16,
    /// Number of replicas that must acknowledge a write in Redis.
    pub replicas: u16,
    /// Retention time of ended workflows that do not set their own.
    pub retention: RetentionDefaults,
    /// Tokens of the API. None if every client that reaches it may use it.
    pub tokens: Option<TokensFile>,
    /// Whether clients may use any name of this server without tokens. Always false for a loopback
    /// address.
    pub anonymous: bool,
    /// Size limit of a request body in bytes.
    pub max_body: usize,
    /// Limit of open event streams.
    pub max_streams: usize,
    /// Memory for the states of recently used workflows, in bytes.
    pub memory: u64,
    /// Number of threads that serve workflows.
    pub threads: usize,
}

/// A file with tokens, and the tokens that are in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokensFile {
    /// The file.
    pub file: NamedFile,
    /// Tokens of the file, which are replaced when it changes.
    pub tokens: Tokens,
}

/// Builds the settings of the API. `counters` is the Redis of the rate limits.
pub(super) fn build(
    values: &mut Values,
    counters: Option<&RedisServer>,
    threads: usize,
) -> Option<WorkflowSettings> {
    let tokens = tokens(values);
    let anonymous = values.boolean("TIDEGATE_ALLOW_ANONYMOUS");
    let tls = tls::api(values);
    let redis = redis::store(values, counters, threads);
    let in_process = redis::is_memory(values);
    let scope = redis::scope(values);
    let prefix = prefix(values);
    let partitions = partitions(values, redis.is_some());
    let replicas = replicas(values);
    let max_body = values.integer("TIDEGATE_MAX_BODY", 1_024..=1 << 30) as usize;
    let max_streams = values.integer("TIDEGATE_MAX_EVENT_STREAMS", 4..=1_000_000) as usize;
    let memory = values.integer("TIDEGATE_WORKFLOW_MEMORY", 1 << 20..=i64::MAX) as u64;
    let address = address(values)?;
    if !address.host.is_loopback() && tokens.is_none() && !anonymous {
        let reason = "other machines can reach this address; say who may use it with TIDEGATE_TOKENS_FILE, or set \
                      TIDEGATE_ALLOW_ANONYMOUS=true to allow everything to everybody";
        values.problem(ADDRESS, &values.text(ADDRESS), reason);
    }
    let test_clock = values.boolean(TEST_CLOCK);
    if test_clock && let Some(reason) = no_test_clock(in_process, counters, &address, values) {
        values.problem(TEST_CLOCK, "true", reason);
    }
    // On a loopback address, a request for a foreign host name comes from a browser (DNS
    // rebinding), and must be refused.
    let anonymous = anonymous && !address.host.is_loopback();
    Some(WorkflowSettings {
        address,
        address_given: values.given.contains(ADDRESS),
        tls,
        redis,
        in_process,
        scope,
        test_clock,
        prefix,
        data_dir: values.text("TIDEGATE_DATA_DIR").into(),
        partitions,
        replicas,
        retention: values.retention("TIDEGATE_RETENTION"),
        tokens,
        anonymous,
        max_body,
        max_streams,
        memory,
        threads,
    })
}

/// The reason why tests cannot control the clock: it must not affect shared stores.
fn no_test_clock(
    in_process: bool,
    counters: Option<&RedisServer>,
    address: &Endpoint,
    values: &Values,
) -> Option<&'static str> {
    match () {
        () if !in_process => Some(
            "it is for tests alone, and needs workflows in memory: set TIDEGATE_STORE_URL=memory",
        ),
        () if counters.is_some() || memcache::is_wanted(values) => Some(
            "it is for tests alone, and needs counters in memory: set neither REDIS_URL nor BACKEND_TYPE",
        ),
        () if !address.host.is_loopback() => Some(
            "it is for tests alone, and needs an address of this machine alone in TIDEGATE_HTTP_ADDR, such as 127.0.0.1:0",
        ),
        () => None,
    }
}

/// The prefix of all keys. Braces would change the slots of the keys, so they are refused.
fn prefix(values: &mut Values) -> String {
    let text = values.text(PREFIX);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":._-/".contains(&byte);
    if !(1..=64).contains(&text.len()) || !text.bytes().all(allowed) {
        values.problem(
            PREFIX,
            &text,
            "expected 1 to 64 ASCII letters, digits or : . _ - /",
        );
    }
    text
}

fn partitions(values: &mut Values, in_redis: bool) -> u16 {
    let partitions = values.integer(PARTITIONS, 1..=256);
    if !in_redis && !values.given.contains(PARTITIONS) {
        return SqliteOptions::PARTITIONS;
    }
    if partitions & (partitions - 1) != 0 {
        values.problem(
            PARTITIONS,
            &partitions.to_string(),
            "expected a power of two",
        );
    }
    partitions as u16
}

/// Number of replicas that must acknowledge a write.
fn replicas(values: &mut Values) -> u16 {
    let text = values.text(ACKNOWLEDGED_BY);
    let number = match text.strip_prefix("replicas:") {
        None if text == "primary" => Some(0),
        None => None,
        Some(number) => number
            .parse()
            .ok()
            .filter(|number| (1..=16).contains(number)),
    };
    let number = number.ok_or("expected primary, or replicas:N with N from 1 to 16");
    values
        .reported(ACKNOWLEDGED_BY, &text, number)
        .unwrap_or_default()
}

/// Address of the API. None if it is not enabled.
fn address(values: &mut Values) -> Option<Endpoint> {
    let text = values.filled(ADDRESS)?;
    values.reported(
        ADDRESS,
        &text,
        host_and_port(&text).ok_or("expected host:port"),
    )
}

fn tokens(values: &mut Values) -> Option<TokensFile> {
    let file = values.file(TOKENS)?;
    // Only this mistake is reported: with an empty list, the address needs no second report of
    // missing tokens.
    let tokens = values.reported(TOKENS, &file.path.to_string_lossy(), read_tokens(&file));
    Some(TokensFile {
        file,
        tokens: tokens.unwrap_or_else(Tokens::none),
    })
}

fn read_tokens(file: &NamedFile) -> Result<Tokens, String> {
    let text = file::read_text(&file.path, MAX_TOKENS_BYTES);
    Tokens::parse(&text.map_err(|error| format!("cannot read the file: {error}"))?)
}

impl TokensFile {
    /// Watches the file, and replaces the tokens when it changes.
    pub(crate) fn watched_files(&self) -> WatchedFiles {
        let Self { file, tokens } = self.clone();
        WatchedFiles::tokens(file.clone(), move || {
            let renewed = read_tokens(&file).map_err(|reason| vec![file.file_error(reason)])?;
            let tokens = tokens.clone();
            Ok(ReloadedFiles::new(None, move || tokens.replace(&renewed)))
        })
    }
}
