//! TLS towards the servers of a store: Redis and memcached.

use std::fmt;

use tidegate_pipeline::{ClientCertificate, Connector, Tls, Verification};

use super::named_file::{CertificateAndKey, CertificateFileError, NamedFile};
use super::validity::Validity;
use super::watched_files::{ReloadedFiles, WatchedFiles};

/// The TLS configuration of connections to one kind of servers, and its files.
#[derive(Debug, Clone)]
pub struct StoreTls {
    /// The files of the configuration.
    pub files: StoreTlsFiles,
    /// The connector that all clients of these servers share.
    pub connector: Connector,
}

/// The files with trusted authorities and the client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreTlsFiles {
    /// The owner of the files, in a word.
    pub of: &'static str,
    /// Authorities that are trusted besides the system's.
    pub authorities: Option<NamedFile>,
    /// The client certificate. `None` if the servers need none.
    pub pair: Option<CertificateAndKey>,
    /// The verification of the server's certificate.
    pub verification: Verification,
}

/// The connector that was made from the files.
pub(crate) struct LoadedStoreTls {
    pub(crate) connector: Connector,
    /// Validity of the client certificate. `None` if there is none, or it cannot be read.
    validity: Option<Validity>,
}

impl StoreTlsFiles {
    /// Reads the files.
    ///
    /// All errors of the files.
    /// Everything that is wrong with them.
    pub(crate) fn load(&self) -> Result<LoadedStoreTls, Vec<CertificateFileError>> {
        let authorities = self.authorities.as_ref().map(|file| {
            let bytes = file.read()?;
            file.certificates_in(&bytes).map(|_| bytes)
        });
        let pair = self.pair.as_ref().map(|CertificateAndKey { chain, key }| {
            let chain = chain
                .read()
                .and_then(|bytes| Ok((chain.certificates_in(&bytes)?, bytes)));
            (
                chain,
                key.read()
                    .and_then(|bytes| key.key_in(&bytes).map(|_| bytes)),
            )
        });
        let (authorities, client_certificate) = match (authorities.transpose(), pair) {
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
        let validity = client_certificate
            .as_ref()
            .and_then(|((chain, _), _)| Validity::from_chain(chain));
        let mut tls = Tls::default();
        tls.authorities = authorities;
        tls.verification = self.verification;
        tls.client = client_certificate.map(|((_, chain), key)| ClientCertificate { chain, key });
        let connector =
            Connector::new(&tls).map_err(|error| vec![self.combined_error(error.to_string())])?;
        Ok(LoadedStoreTls {
            connector,
            validity,
        })
    }

    /// Returns an error about all files in combination.
    fn combined_error(&self, reason: String) -> CertificateFileError {
        let last = self
            .pair
            .as_ref()
            .map(|pair| &pair.key)
            .or(self.authorities.as_ref());
        match last {
            Some(file) => file.file_error(reason),
            None => NamedFile {
                variable: self.of,
                path: "".into(),
            }
            .file_error(reason),
        }
    }

    fn named_files(&self) -> Vec<NamedFile> {
        let pair = self
            .pair
            .as_ref()
            .map(|CertificateAndKey { chain, key }| [chain.clone(), key.clone()]);
        self.authorities
            .clone()
            .into_iter()
            .chain(pair.into_iter().flatten())
            .collect()
    }
}

impl StoreTls {
    /// Watches the files, and replaces the connector when they change. Returns `None` if there are
    /// no files.
    pub(crate) fn watched_files(&self) -> Option<WatchedFiles> {
        let Self { files, connector } = self.clone();
        let all = files.named_files();
        (!all.is_empty()).then(|| {
            WatchedFiles::new(files.of, all, move || {
                let LoadedStoreTls {
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

impl fmt::Debug for LoadedStoreTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}
