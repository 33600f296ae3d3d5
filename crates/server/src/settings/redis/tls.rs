//! Certificates and keys for Redis and memcached, from their files.

use tidegate_pipeline::{ClientCertificate, Tls, Verification};

use crate::settings::read::Values;

/// The variables of one kind of server.
pub(in crate::settings) struct Names {
    authority: &'static str,
    certificate: &'static str,
    key: &'static str,
    nameless: &'static str,
}

pub(super) const REDIS: Names = Names {
    authority: "REDIS_TLS_CACERT",
    certificate: "REDIS_TLS_CLIENT_CERT",
    key: "REDIS_TLS_CLIENT_KEY",
    nameless: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
};
pub(in crate::settings) const MEMCACHE: Names = Names {
    authority: "MEMCACHE_TLS_CACERT",
    certificate: "MEMCACHE_TLS_CLIENT_CERT",
    key: "MEMCACHE_TLS_CLIENT_KEY",
    nameless: "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION",
};

/// Reads the files. One that cannot be read is a mistake in its variable.
pub(in crate::settings) fn build(values: &mut Values, names: &Names) -> Tls {
    let mut tls = Tls::default();
    tls.authorities = file(values, names.authority);
    // As in the reference, the pair is used only when both are given.
    if let (Some(chain), Some(key)) = (file(values, names.certificate), file(values, names.key)) {
        tls.client = Some(ClientCertificate { chain, key });
    }
    if values.boolean(names.nameless) {
        tls.verification = Verification::WithoutName;
    }
    tls
}

fn file(values: &mut Values, name: &'static str) -> Option<Vec<u8>> {
    let path = values.text(name);
    if path.is_empty() {
        return None;
    }
    std::fs::read(&path).map_err(|error| values.problem(name, &path, format!("cannot read the file: {error}"))).ok()
}
