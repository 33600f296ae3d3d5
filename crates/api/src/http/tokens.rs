//! Tokens and the roles that they give.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use subtle::ConstantTimeEq as _;

/// Rights of a token. Each role includes the roles before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads.
    Read,
    /// Reads, creates workflows and runs jobs.
    Work,
    /// Everything.
    Admin,
}

impl Role {
    fn from_word(word: &str) -> Option<Self> {
        [Self::Read, Self::Work, Self::Admin]
            .into_iter()
            .find(|role| role.word() == word)
    }

    /// Returns the word of a tokens file.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Work => "work",
            Self::Admin => "admin",
        }
    }
}

/// Tokens that may use the API. `Debug` shows neither the tokens nor their lengths. Clones share
/// the tokens: [`Tokens::replace`] replaces them for all clones.
#[derive(Clone)]
pub struct Tokens(Arc<RwLock<Arc<[Token]>>>);

#[derive(PartialEq, Eq)]
struct Token {
    role: Role,
    name: Arc<str>,
    secret: String,
}

impl PartialEq for Tokens {
    fn eq(&self, other: &Self) -> bool {
        self.all() == other.all()
    }
}

impl Eq for Tokens {}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_list()
            .entries(self.all().iter().map(|token| (&token.name, token.role)))
            .finish()
    }
}

impl Token {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [role, name, secret] = words[..] else {
            return Err("expected `role name token`");
        };
        Ok(Self {
            role: Role::from_word(role).ok_or("the role must be read, work or admin")?,
            name: name.into(),
            secret: secret.to_owned(),
        })
    }
}

impl Tokens {
    /// Returns a set without any token, which refuses every client.
    #[must_use]
    pub fn none() -> Self {
        Self::from_list(Vec::new())
    }

    fn from_list(tokens: Vec<Token>) -> Self {
        Self(Arc::new(RwLock::new(tokens.into())))
    }

    /// Returns the active tokens. They are replaced as a whole, so a poisoned lock can be used.
    fn all(&self) -> Arc<[Token]> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Activates `tokens`. Requests that were accepted go on.
    pub fn replace(&self, tokens: &Self) {
        let tokens = tokens.all();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// Parses lines of `role name token`. Empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// The first line of another form, without its token.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens: Vec<Token> = Vec::new();
        for (line, at) in text.lines().zip(1..) {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let token = Token::parse(line).map_err(|error| format!("line {at}: {error}"))?;
            if tokens.iter().any(|other| other.secret == token.secret) {
                let name = token.name;
                return Err(format!(
                    "line {at}: the token of {name} is already used by another line"
                ));
            }
            tokens.push(token);
        }
        if tokens.is_empty() {
            Err("the file contains no token".to_owned())
        } else {
            Ok(Self::from_list(tokens))
        }
    }

    /// Returns the role and name of a token. The time does not depend on how much of the token is
    /// right.
    #[must_use]
    pub fn find(&self, secret: &str) -> Option<(Role, Arc<str>)> {
        let mut found = None;
        for token in self.all().iter() {
            if token.secret.as_bytes().ct_eq(secret.as_bytes()).into() {
                found = Some((token.role, token.name.clone()));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_all_of_its_characters() {
        let tokens =
            Tokens::parse("# who\nread ui abc\n\n  work  sdk abcd \nadmin ada \u{e9}x\n").unwrap();
        let check = |secret: &str, expected: Option<(Role, &str)>| {
            let found = tokens.find(secret);
            assert_eq!(
                found.as_ref().map(|(role, name)| (*role, &**name)),
                expected,
                "{secret}"
            );
        };
        check("abc", Some((Role::Read, "ui")));
        check("abcd", Some((Role::Work, "sdk")));
        check("\u{e9}x", Some((Role::Admin, "ada")));
        for secret in ["", "ab", "abce", "abcde", "abc\0", "ABC"] {
            check(secret, None);
        }
        assert!(!format!("{tokens:?}").contains("abc"), "{tokens:?}");
        let held = tokens.clone();
        tokens.replace(&Tokens::parse("admin new abcde").unwrap());
        assert_eq!(
            (held.find("abc"), held.find("abcde")),
            (None, Some((Role::Admin, "new".into())))
        );
    }

    #[test]
    fn mistakes_are_told_by_line_and_without_the_token() {
        for (text, reason) in [
            (
                "read ui s3cret\nwork s3cret",
                "line 2: expected `role name token`",
            ),
            ("root ada s3cret", "line 1: the role must be"),
            ("read a s3cret\nread b s3cret", "line 2: the token of b"),
            ("# nobody\n", "no token"),
        ] {
            let error = Tokens::parse(text).unwrap_err();
            assert!(
                error.contains(reason) && !error.contains("s3cret"),
                "{error}"
            );
        }
    }
}
