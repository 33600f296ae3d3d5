//! TLS to Redis and memcached, built from certificate and key files.

use tidegate_pipeline::{Connector, Verification};

use crate::settings::read::Values;
use crate::tls::{NamedFile, Pair, StoreFiles, StoreTls};

/// Names of the TLS variables of one kind of server.
pub(in crate::settings) struct Names {
    /// Kind of server, in one word.
    of: &'static str,
    authority: &'static str,
    certificate: &'static str,
    key: &'static str,
    nameless: &'static str,
}

pub(super) const REDIS: Names = Names {
    of: "redis",
    authority: "REDIS_TLS_CACERT",
    certificate: "REDIS_TLS_CLIENT_CERT",
    key: "REDIS_TLS_CLIENT_KEY",
    nameless: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
};
pub(in crate::settings) const MEMCACHE: Names = Names {
    of: "memcached",
    authority: "MEMCACHE_TLS_CACERT",
    certificate: "MEMCACHE_TLS_CLIENT_CERT",
    key: "MEMCACHE_TLS_CLIENT_KEY",
    nameless: "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION",
};

/// TLS for all servers of one kind, built once. An unusable file is a mistake in its variable.
pub(in crate::settings) fn build(values: &mut Values, names: &Names) -> Option<Connector> {
    if let Some(made) = values
        .stores_tls
        .iter()
        .find(|made| made.files.of == names.of)
    {
        return Some(made.connector.clone());
    }
    let authorities = file(values, names.authority);
    let chain = file(values, names.certificate);
    let key = file(values, names.key);
    // As in the reference, the certificate is used only if both files are set.
    let (pair, alone) = match (chain, key) {
        (Some(chain), Some(key)) => (Some(Pair { chain, key }), None),
        (chain, key) => (None, chain.or(key)),
    };
    let verification = if values.boolean(names.nameless) {
        Verification::WithoutName
    } else {
        Verification::default()
    };
    let files = StoreFiles {
        of: names.of,
        authorities,
        pair,
        verification,
    };
    let loaded = files.load();
    let alone = alone.and_then(|file| file.read().err());
    let (made, flaws) = match loaded {
        Ok(loaded) => (Some(loaded.connector), Vec::new()),
        Err(flaws) => (None, flaws),
    };
    for flaw in flaws.into_iter().chain(alone) {
        values.problem(
            flaw.file.variable,
            &flaw.file.path.to_string_lossy(),
            flaw.reason,
        );
    }
    let connector = made?;
    values.stores_tls.push(StoreTls {
        files,
        connector: connector.clone(),
    });
    Some(connector)
}

fn file(values: &Values, variable: &'static str) -> Option<NamedFile> {
    let path = values.text(variable);
    (!path.is_empty()).then(|| NamedFile {
        variable,
        path: path.into(),
    })
}
