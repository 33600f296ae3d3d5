//! TLS towards the servers of a store: Redis and memcached.

use std::fmt;

use tidegate_pipeline::{ClientCertificate, Connector, Tls, Verification};

use super::named_file::{CertificateAndKey, CertificateFileError, FileResult, NamedFile, both};
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
    /// # Errors
    /// All errors of the files.
    pub(crate) fn load(&self) -> FileResult<LoadedStoreTls> {
        let authorities = self.authorities.as_ref().map(|file| {
            let bytes = file.read()?;
            file.certificates_in(&bytes).map(|_| bytes)
        });
        let client = self.pair.as_ref().map(client_certificate);
        let (authorities, client) = both(authorities.transpose(), client.transpose())?;
        let (validity, client) = client.unzip();
        let mut tls = Tls::default();
        tls.authorities = authorities;
        tls.verification = self.verification;
        tls.client = client;
        let connector =
            Connector::new(&tls).map_err(|error| self.combined_error(error.to_string()))?;
        Ok(LoadedStoreTls {
            connector,
            validity: validity.flatten(),
        })
    }

    /// Returns an error about all files in combination.
    fn combined_error(&self, reason: String) -> CertificateFileError {
        let key = self.pair.as_ref().map(|pair| &pair.key);
        match key.or(self.authorities.as_ref()) {
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

/// Reads the pair, and returns the validity of the certificate and the bytes of both files.
fn client_certificate(
    CertificateAndKey { chain, key }: &CertificateAndKey,
) -> FileResult<(Option<Validity>, ClientCertificate)> {
    let chain = chain
        .read()
        .and_then(|bytes| Ok((Validity::from_chain(&chain.certificates_in(&bytes)?), bytes)));
    let key = key
        .read()
        .and_then(|bytes| key.key_in(&bytes).map(|_| bytes));
    let ((validity, chain), key) = both(chain, key)?;
    Ok((validity, ClientCertificate { chain, key }))
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
