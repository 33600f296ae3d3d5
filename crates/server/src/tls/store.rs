//! TLS towards the servers of a store: Redis and memcached.

use std::fmt;

use tidegate_pipeline::{ClientCertificate, Connector, Tls, Verification};

use super::follow::{ReloadedFiles, WatchedFiles};
use super::named_file::{CertificateFileError, NamedFile, Pair};
use super::validity::Validity;

/// What connections to one kind of servers are encrypted with, and where it comes from.
#[derive(Debug, Clone)]
pub struct StoreTls {
    /// Where it comes from.
    pub files: StoreFiles,
    /// What all clients of these servers share.
    pub connector: Connector,
}

/// The files that say whom we trust, and what we show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFiles {
    /// Whose they are, in a word.
    pub of: &'static str,
    /// Authorities that are trusted besides the system's.
    pub authorities: Option<NamedFile>,
    /// What is shown to a server that asks. None: nothing.
    pub pair: Option<Pair>,
    /// What of a server's certificate is checked.
    pub verification: Verification,
}

/// What was made of the files.
pub(crate) struct Loaded {
    pub(crate) connector: Connector,
    /// Of what is shown. None: nothing is, or it cannot be read.
    validity: Option<Validity>,
}

impl StoreFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub(crate) fn load(&self) -> Result<Loaded, Vec<CertificateFileError>> {
        let authorities = self.authorities.as_ref().map(|file| {
            let bytes = file.read()?;
            file.certificates_in(&bytes).map(|_| bytes)
        });
        let pair = self.pair.as_ref().map(|Pair { chain, key }| {
            let chain = chain
                .read()
                .and_then(|bytes| Ok((chain.certificates_in(&bytes)?, bytes)));
            (
                chain,
                key.read()
                    .and_then(|bytes| key.key_in(&bytes).map(|_| bytes)),
            )
        });
        let (authorities, shown) = match (authorities.transpose(), pair) {
            (Ok(authorities), None) => (authorities, None),
            (Ok(authorities), Some((Ok(chain), Ok(key)))) => (authorities, Some((chain, key))),
            (authorities, pair) => {
                let (chain, key) = pair
                    .map(|(chain, key)| (chain.err(), key.err()))
                    .unwrap_or_default();
                return Err([authorities.err(), chain, key]
                    .into_iter()
                    .flatten()
                    .collect());
            }
        };
        let validity = shown
            .as_ref()
            .and_then(|((chain, _), _)| Validity::of(chain));
        let mut tls = Tls::default();
        tls.authorities = authorities;
        tls.verification = self.verification;
        tls.client = shown.map(|((_, chain), key)| ClientCertificate { chain, key });
        let connector = Connector::new(&tls).map_err(|error| vec![self.flaw(error.to_string())])?;
        Ok(Loaded {
            connector,
            validity,
        })
    }

    /// All of them together cannot be used.
    fn flaw(&self, reason: String) -> CertificateFileError {
        let last = self
            .pair
            .as_ref()
            .map(|pair| &pair.key)
            .or(self.authorities.as_ref());
        match last {
            Some(file) => file.flaw(reason),
            None => NamedFile {
                variable: self.of,
                path: "".into(),
            }
            .flaw(reason),
        }
    }

    fn all(&self) -> Vec<NamedFile> {
        let pair = self
            .pair
            .as_ref()
            .map(|Pair { chain, key }| [chain.clone(), key.clone()]);
        self.authorities
            .clone()
            .into_iter()
            .chain(pair.into_iter().flatten())
            .collect()
    }
}

impl StoreTls {
    /// Gives connections what was renewed. None: there are no files.
    pub(crate) fn followed(&self) -> Option<WatchedFiles> {
        let Self { files, connector } = self.clone();
        let all = files.all();
        (!all.is_empty()).then(|| {
            WatchedFiles::new(files.of, all, move || {
                let Loaded {
                    connector: renewed,
                    validity,
                } = files.load()?;
                let connector = connector.clone();
                Ok(ReloadedFiles::new(validity, move || {
                    connector.replace(&renewed)
                }))
            })
        })
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}
