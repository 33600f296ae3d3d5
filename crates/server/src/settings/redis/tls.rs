//! TLS to Redis and memcached, built from certificate and key files.

use tidegate_pipeline::{Connector, Verification};

use crate::settings::read::Values;
use crate::tls::{CertificateAndKey, StoreTls, StoreTlsFiles};

/// Names of the TLS variables of one kind of server.
pub(in crate::settings) struct StoreTlsVariables {
    /// Kind of server, in one word.
    kind: &'static str,
    authority: &'static str,
    certificate: &'static str,
    key: &'static str,
    nameless: &'static str,
}

pub(super) const REDIS: StoreTlsVariables = StoreTlsVariables {
    kind: "redis",
    authority: "REDIS_TLS_CACERT",
    certificate: "REDIS_TLS_CLIENT_CERT",
    key: "REDIS_TLS_CLIENT_KEY",
    nameless: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
};
pub(in crate::settings) const MEMCACHE: StoreTlsVariables = StoreTlsVariables {
    kind: "memcached",
    authority: "MEMCACHE_TLS_CACERT",
    certificate: "MEMCACHE_TLS_CLIENT_CERT",
    key: "MEMCACHE_TLS_CLIENT_KEY",
    nameless: "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION",
};

/// TLS for all servers of one kind, built once. An unusable file is a mistake in its variable.
pub(in crate::settings) fn build(
    values: &mut Values,
    names: &StoreTlsVariables,
) -> Option<Connector> {
    let known = values
        .stores_tls
        .iter()
        .find(|known| known.files.of == names.kind);
    if let Some(known) = known {
        return Some(known.connector.clone());
    }
    let chain = values.file(names.certificate);
    let key = values.file(names.key);
    // As in the reference, the certificate is used only if both files are set.
    let (pair, alone) = match (chain, key) {
        (Some(chain), Some(key)) => (Some(CertificateAndKey { chain, key }), None),
        (chain, key) => (None, chain.or(key)),
    };
    let verification = if values.boolean(names.nameless) {
        Verification::WithoutName
    } else {
        Verification::default()
    };
    let files = StoreTlsFiles {
        of: names.kind,
        authorities: values.file(names.authority),
        pair,
        verification,
    };
    let loaded = files.load();
    let alone = alone.and_then(|file| file.read().err());
    let connector = match loaded {
        Ok(loaded) => Some(loaded.connector),
        Err(errors) => {
            values.file_errors(errors);
            None
        }
    };
    values.file_errors(alone);
    let connector = connector?;
    values.stores_tls.push(StoreTls {
        files,
        connector: connector.clone(),
    });
    Some(connector)
}
