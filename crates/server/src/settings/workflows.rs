//! The API, where workflows live, and who may use them.

use std::fmt;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;

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

/// What somebody may do; each may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Read,
    /// Create workflows and run jobs.
    Work,
    /// Everything.
    Admin,
}

/// Who may use the API. Never shown: neither the tokens nor their number of characters.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens(Arc<[Token]>);

#[derive(PartialEq, Eq)]
struct Token {
    role: Role,
    name: String,
    secret: String,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|token| (&token.name, token.role))).finish()
    }
}

impl Tokens {
    /// Reads lines of `role name token`; empty ones and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// The first line that is something else, without its token.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens: Vec<Token> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let number = at + 1;
            let words: Vec<&str> = line.split_whitespace().collect();
            let [role, name, secret] = words[..] else {
                return Err(format!("line {number}: expected `role name token`"));
            };
            let role = match role {
                "read" => Role::Read,
                "work" => Role::Work,
                "admin" => Role::Admin,
                _ => return Err(format!("line {number}: the role must be read, work or admin")),
            };
            if tokens.iter().any(|token| token.secret == secret) {
                return Err(format!("line {number}: the token of {name} is somebody else's too"));
            }
            tokens.push(Token { role, name: name.to_owned(), secret: secret.to_owned() });
        }
        if tokens.is_empty() { Err("there is no token in it".to_owned()) } else { Ok(Self(tokens.into())) }
    }

    /// The role and name of who has a token. It takes as long for a token that is nearly right as for one that is not.
    #[must_use]
    pub fn find(&self, secret: &str) -> Option<(Role, &str)> {
        let mut found = None;
        for token in self.0.iter() {
            if black_box(is_same(token.secret.as_bytes(), secret.as_bytes())) {
                found = Some((token.role, token.name.as_str()));
            }
        }
        found
    }
}

/// Compares without stopping at the first difference.
fn is_same(known: &[u8], given: &[u8]) -> bool {
    let differences = known.iter().zip(given.iter().chain(std::iter::repeat(&0)));
    let folded = differences.fold(0, |folded, (known, given)| black_box(folded | (known ^ given)));
    folded == 0 && known.len() == given.len()
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
            Some(Tokens(Arc::from([])))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_all_of_its_characters() {
        let tokens = Tokens::parse("# who\nread ui abc\n\n  work  sdk abcd \nadmin ada \u{e9}x\n").unwrap();
        let check = |secret: &str, expected| assert_eq!(tokens.find(secret), expected, "{secret}");
        check("abc", Some((Role::Read, "ui")));
        check("abcd", Some((Role::Work, "sdk")));
        check("\u{e9}x", Some((Role::Admin, "ada")));
        for secret in ["", "ab", "abce", "abcde", "abc\0", "ABC"] {
            check(secret, None);
        }
        assert!(!format!("{tokens:?}").contains("abc"), "{tokens:?}");
    }

    #[test]
    fn mistakes_are_told_by_line_and_without_the_token() {
        for (text, reason) in [
            ("read ui s3cret\nwork s3cret", "line 2: expected `role name token`"),
            ("root ada s3cret", "line 1: the role must be"),
            ("read a s3cret\nread b s3cret", "line 2: the token of b"),
            ("# nobody\n", "no token"),
        ] {
            let error = Tokens::parse(text).unwrap_err();
            assert!(error.contains(reason) && !error.contains("s3cret"), "{error}");
        }
    }
}
