//! Authorities, what they issue, and files with it.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;

/// An authority of our own.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for `name` that is valid for long.
    pub(crate) fn issue(&self, name: &str) -> Issued {
        self.issue_as(name, |_| {})
    }

    /// A certificate that ended in a year.
    pub(crate) fn expired(&self, name: &str) -> Issued {
        self.issue_as(name, |params| {
            params.not_after = date_time_ymd(2021, 12, 31)
        })
    }

    /// A certificate that is for servers only.
    pub(crate) fn of_a_server(&self, name: &str) -> Issued {
        self.issue_as(name, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]
        })
    }

    pub(crate) fn issue_as(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2100, 12, 31);
        change(&mut params);
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Issued {
            chain,
            key: key.serialize_pem(),
        }
    }
}

/// A folder for certificates.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file in place.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// `server.pem` and `server.key`.
    pub(crate) fn put(&self, issued: &Issued) {
        self.write("server.pem", &issued.chain);
        self.write("server.key", &issued.key);
    }

    /// The settings of a gRPC port with [`Folder::put`] certificates.
    pub(crate) fn grpc(&self) -> [(&'static str, String); 3] {
        [
            ("GRPC_SERVER_USE_TLS", "true".to_owned()),
            ("GRPC_SERVER_TLS_CERT", self.text("server.pem")),
            ("GRPC_SERVER_TLS_KEY", self.text("server.key")),
        ]
    }
}

/// As settings are given.
pub(crate) fn borrowed<'a>(settings: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    settings
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect()
}
