//! Certificates and keys for Redis, from their files.

use tidegate_pipeline::{ClientCertificate, Tls, Verification};

use crate::settings::read::Values;

const AUTHORITY: &str = "REDIS_TLS_CACERT";
const CERTIFICATE: &str = "REDIS_TLS_CLIENT_CERT";
const KEY: &str = "REDIS_TLS_CLIENT_KEY";

/// Reads the files. One that cannot be read is a mistake in its variable.
pub(super) fn build(values: &mut Values) -> Tls {
    let mut tls = Tls::default();
    tls.authorities = file(values, AUTHORITY);
    // As in the reference, the pair is used only when both are given.
    if let (Some(chain), Some(key)) = (file(values, CERTIFICATE), file(values, KEY)) {
        tls.client = Some(ClientCertificate { chain, key });
    }
    if values.boolean("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION") {
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
