//! TLS of the gRPC port and of the API. The files are read here, so that all mistakes are reported
//! at start.

use tokio_rustls::rustls::pki_types::ServerName;

use crate::settings::read::Values;
use crate::tls::{CertificateAndKey, ClientAuth, PortTls};

const USE: &str = "GRPC_SERVER_USE_TLS";
const GRPC: PortTlsVariables = PortTlsVariables {
    certificate: "GRPC_SERVER_TLS_CERT",
    key: "GRPC_SERVER_TLS_KEY",
    authorities: "GRPC_CLIENT_TLS_CACERT",
    protocol: b"h2",
};
const SAN: &str = "GRPC_CLIENT_TLS_SAN";

const API: PortTlsVariables = PortTlsVariables {
    certificate: "TIDEGATE_TLS_CERT",
    key: "TIDEGATE_TLS_KEY",
    authorities: "TIDEGATE_TLS_CLIENT_CACERT",
    protocol: b"http/1.1",
};

/// Names of the TLS variables of one port, and its ALPN protocol.
struct PortTlsVariables {
    certificate: &'static str,
    key: &'static str,
    authorities: &'static str,
    protocol: &'static [u8],
}

/// TLS of the gRPC port, if it is enabled.
pub(in crate::settings) fn grpc(values: &mut Values) -> Option<PortTls> {
    if !values.boolean(USE) {
        let files = [GRPC.certificate, GRPC.key, GRPC.authorities, SAN];
        for name in files
            .into_iter()
            .filter(|name| !values.text(name).is_empty())
            .collect::<Vec<_>>()
        {
            values.warnings.push(format!(
                "{name} has no effect: the gRPC port speaks plaintext unless {USE}=true"
            ));
        }
        return None;
    }
    let mut tls = port_tls(values, &GRPC, &format!("{USE}=true needs it"));
    let name = client_name(values);
    if let Some(clients) = tls.as_mut().and_then(|tls| tls.clients.as_mut()) {
        clients.name = name;
    }
    tls
}

/// The name that certificates of gRPC clients must contain, if there is one.
fn client_name(values: &mut Values) -> Option<ServerName<'static>> {
    let name = values.filled(SAN)?;
    let parsed = name.clone().try_into();
    let expected = "expected a DNS name or an IP address";
    let parsed = values.reported(SAN, &name, parsed.map_err(|_| expected));
    if values.text(GRPC.authorities).is_empty() {
        let reason = format!(
            "clients are asked for a certificate only with {}: set it as well",
            GRPC.authorities
        );
        values.problem(SAN, &name, reason);
    }
    parsed
}

/// TLS of the API, if it is enabled.
pub(in crate::settings) fn api(values: &mut Values) -> Option<PortTls> {
    let given =
        [API.certificate, API.key, API.authorities].map(|name| !values.text(name).is_empty());
    if given.contains(&true) {
        port_tls(
            values,
            &API,
            "the API needs a certificate and its key for TLS",
        )
    } else {
        None
    }
}

/// TLS with the files of `names`, if they are valid. `need` explains why certificate and key are
/// required.
fn port_tls(values: &mut Values, names: &PortTlsVariables, need: &str) -> Option<PortTls> {
    let chain = values.file(names.certificate);
    let key = values.file(names.key);
    let authorities = values.file(names.authorities);
    for (missing, what) in [(&chain, names.certificate), (&key, names.key)] {
        if missing.is_none() {
            values.problem(what, "", format!("expected the path of a file; {need}"));
        }
    }
    let clients = authorities.map(|authorities| ClientAuth {
        authorities,
        name: None,
    });
    let tls = match (chain, key) {
        (Some(chain), Some(key)) => PortTls {
            pair: CertificateAndKey { chain, key },
            clients,
            protocol: names.protocol,
        },
        (chain, key) => {
            // Each file is checked, even if another one is missing.
            values.file_errors(chain.and_then(|chain| chain.certificates().err()));
            values.file_errors(key.and_then(|key| key.key().err()));
            values.file_errors(clients.and_then(|clients| clients.verifier().err()));
            return None;
        }
    };
    values.file_errors(tls.load().err().unwrap_or_default());
    Some(tls)
}
