//! The API, where workflows live, and who may use them.

use std::path::PathBuf;

use tidegate_api::Tokens;
use tidegate_workflow::RetentionDefaults;

use super::Endpoint;
use super::build::host_and_port;
use super::read::Values;

const ADDRESS: &str = "TIDEGATE_HTTP_ADDR";
const PARTITIONS: &str = "TIDEGATE_PARTITIONS";
const TOKENS: &str = "TIDEGATE_TOKENS_FILE";

/// The API and its workflows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflows {
    /// Where the API listens.
    pub address: Endpoint,
    /// Where workflows are when there is no Redis.
    pub data_dir: PathBuf,
    /// Partitions of a new store, a power of two up to 256.
    pub partitions: u16,
    /// How long workflows are kept that say nothing about it themselves.
    pub retention: RetentionDefaults,
    /// Who may use the API; none: everybody who reaches it.
    pub tokens: Option<Tokens>,
    /// Whether to serve without tokens whoever asks from wherever.
    pub anonymous: bool,
    /// Largest body, in bytes.
    pub max_body: usize,
    /// Memory for recently used states, in bytes.
    pub memory: u64,
}

pub(super) fn build(values: &mut Values) -> Option<Workflows> {
    let text = values.text(ADDRESS);
    let tokens = tokens(values);
    let anonymous = values.boolean("TIDEGATE_ALLOW_ANONYMOUS");
    let partitions = values.integer(PARTITIONS, 1..=256);
    if partitions & (partitions - 1) != 0 {
        values.problem(PARTITIONS, &partitions.to_string(), "expected a power of two".to_owned());
    }
    let max_body = values.integer("TIDEGATE_MAX_BODY", 1_024..=1 << 30) as usize;
    let memory = values.integer("TIDEGATE_WORKFLOW_MEMORY", 1 << 20..=i64::MAX) as u64;
    if text.is_empty() {
        return None;
    }
    let Some(address) = host_and_port(&text) else {
        values.problem(ADDRESS, &text, "expected host:port".to_owned());
        return None;
    };
    if !address.host.is_loopback() && tokens.is_none() && !anonymous {
        let reason = "other machines reach this address: say who may use it with TIDEGATE_TOKENS_FILE, or set \
                      TIDEGATE_ALLOW_ANONYMOUS=true to let everybody do everything";
        values.problem(ADDRESS, &text, reason.to_owned());
    }
    Some(Workflows {
        address,
        data_dir: values.text("TIDEGATE_DATA_DIR").into(),
        partitions: partitions as u16,
        retention: values.retention("TIDEGATE_RETENTION"),
        tokens,
        anonymous,
        max_body,
        memory,
    })
}

fn tokens(values: &mut Values) -> Option<Tokens> {
    let path = values.text(TOKENS);
    if path.is_empty() {
        return None;
    }
    let read = std::fs::read_to_string(&path).map_err(|error| format!("it cannot be read: {error}"));
    match read.and_then(|text| Tokens::parse(&text)) {
        Ok(tokens) => Some(tokens),
        Err(reason) => {
            values.problem(TOKENS, &path, reason);
            // One mistake is enough: it is not also a server without tokens.
            Some(Tokens::none())
        }
    }
}
