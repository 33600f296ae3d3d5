//! Credentials of connections.

use std::fmt;
use std::sync::Arc;

use super::guarded;

/// Credentials that a connection authenticates with.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The ACL user. `None` for the default user.
    pub username: Option<String>,
    /// The password.
    pub password: String,
}

/// Provides credentials each time a connection opens: for passwords and tokens that change.
#[derive(Clone)]
pub struct CredentialsProvider(Arc<Provide>);

type Provide = dyn Fn() -> Result<Credentials, String> + Send + Sync;

impl CredentialsProvider {
    /// Calls `provide` for every connection. It runs on the thread of the connection and must not
    /// block. Its error, without secrets, becomes the reason why the server is unavailable. So does
    /// its panic.
    pub fn new(provide: impl Fn() -> Result<Credentials, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(provide))
    }

    pub(crate) fn fetch(&self) -> Result<Credentials, String> {
        guarded("credentials provider", || (self.0)()).and_then(|answer| answer)
    }
}

impl fmt::Debug for Credentials {
    // A password must not reach a log through a debug print of the configuration around it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CredentialsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsProvider")
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_printed() {
        let credentials = Credentials {
            username: Some("ada".into()),
            password: "secret".into(),
        };
        assert!(!format!("{credentials:?}").contains("secret"));
    }
}
