//! A file whose path a variable sets, and the certificates or the key in it.

use std::path::PathBuf;
use std::{fmt, io};

use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::base::file;

/// Maximum of bytes of a file. All authorities of a system together take a quarter of it.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file, and the variable that sets its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// The variable.
    pub variable: &'static str,
    /// The file.
    pub path: PathBuf,
}

/// A certificate chain, leaf first, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateAndKey {
    /// The chain.
    pub chain: NamedFile,
    /// The key.
    pub key: NamedFile,
}

impl CertificateAndKey {
    /// Reads both files.
    pub(super) fn load(
        &self,
    ) -> FileResult<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        both(self.chain.certificates(), self.key.key())
    }
}

/// A value that was made from files, or all errors of the files.
pub(super) type FileResult<T> = Result<T, Vec<CertificateFileError>>;

/// Returns both values, or the errors of both.
pub(super) fn both<A, B>(
    a: Result<A, impl Into<Vec<CertificateFileError>>>,
    b: Result<B, impl Into<Vec<CertificateFileError>>>,
) -> FileResult<(A, B)> {
    match (a.map_err(Into::into), b.map_err(Into::into)) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (a, b) => Err([a.err(), b.err()].into_iter().flatten().flatten().collect()),
    }
}

/// An error in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateFileError {
    pub(crate) file: NamedFile,
    pub(crate) reason: String,
}

impl fmt::Display for CertificateFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file: NamedFile { variable, path },
            reason,
        } = self;
        write!(f, "{variable}='{}': {reason}", path.display())
    }
}

impl From<CertificateFileError> for Vec<CertificateFileError> {
    fn from(error: CertificateFileError) -> Self {
        vec![error]
    }
}

impl NamedFile {
    pub(crate) fn file_error(&self, reason: impl Into<String>) -> CertificateFileError {
        CertificateFileError {
            file: self.clone(),
            reason: reason.into(),
        }
    }

    /// The whole file.
    pub(crate) fn bytes(&self) -> io::Result<Vec<u8>> {
        file::read(&self.path, MAX_FILE_BYTES)
    }

    /// Reads the whole file as [`NamedFile::bytes`] does, and names the file in the error.
    pub(crate) fn read(&self) -> Result<Vec<u8>, CertificateFileError> {
        self.bytes()
            .map_err(|error| self.file_error(format!("cannot read the file: {error}")))
    }

    /// Reads all certificates in the file, at least one.
    pub(crate) fn certificates(
        &self,
    ) -> Result<Vec<CertificateDer<'static>>, CertificateFileError> {
        self.certificates_in(&self.read()?)
    }

    /// Parses all certificates in `bytes` of the file, at least one.
    pub(super) fn certificates_in(
        &self,
        bytes: &[u8],
    ) -> Result<Vec<CertificateDer<'static>>, CertificateFileError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
        match read {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            Ok(_) => {
                Err(self
                    .file_error("it has no certificate in PEM form (-----BEGIN CERTIFICATE-----)"))
            }
            Err(error) => Err(self.file_error(pem_error_text(&error))),
        }
    }

    /// Reads the first key in the file.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, CertificateFileError> {
        self.key_in(&self.read()?)
    }

    /// Parses the first key in `bytes` of the file.
    pub(super) fn key_in(
        &self,
        bytes: &[u8],
    ) -> Result<PrivateKeyDer<'static>, CertificateFileError> {
        PrivateKeyDer::from_pem_slice(bytes).map_err(|error| {
            let encrypted = bytes.windows(9).any(|word| word == b"ENCRYPTED");
            match error {
                PemError::NoItemsFound if encrypted => {
                    self.file_error("the key is encrypted, and the server cannot ask for its passphrase; write it without one")
                }
                PemError::NoItemsFound => self.file_error("it has no private key in PEM form (-----BEGIN PRIVATE KEY-----)"),
                error => self.file_error(pem_error_text(&error)),
            }
        })
    }
}

/// Describes an error without the text of the library, which could quote a key.
fn pem_error_text(error: &PemError) -> &'static str {
    match error {
        PemError::MissingSectionEnd { .. } => "its PEM form is cut: the END line is missing",
        _ => "its PEM form is broken",
    }
}
