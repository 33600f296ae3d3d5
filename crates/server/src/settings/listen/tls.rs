//! TLS of the gRPC port and of the API. The files are read here, so that all mistakes are reported
//! at start.

use crate::settings::read::Values;
use crate::tls::{Clients, NamedFile, Pair, PortTls};

const USE: &str = "GRPC_SERVER_USE_TLS";
const GRPC: Names = Names {
    certificate: "GRPC_SERVER_TLS_CERT",
    key: "GRPC_SERVER_TLS_KEY",
    authorities: "GRPC_CLIENT_TLS_CACERT",
    protocol: b"h2",
};
const SAN: &str = "GRPC_CLIENT_TLS_SAN";

const API: Names = Names {
    certificate: "TIDEGATE_TLS_CERT",
    key: "TIDEGATE_TLS_KEY",
    authorities: "TIDEGATE_TLS_CLIENT_CACERT",
    protocol: b"http/1.1",
};

/// Names of the TLS variables of one port, and its ALPN protocol.
struct Names {
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
    let mut tls = port(values, &GRPC, &format!("{USE}=true needs it"));
    let name = values.text(SAN);
    if !name.is_empty() {
        let parsed = name.clone().try_into();
        if parsed.is_err() {
            values.problem(
                SAN,
                &name,
                "expected a DNS name or an IP address".to_owned(),
            );
        }
        if values.text(GRPC.authorities).is_empty() {
            let reason = format!(
                "clients are asked for a certificate only with {}: set it as well",
                GRPC.authorities
            );
            values.problem(SAN, &name, reason);
        }
        if let (Ok(name), Some(clients)) =
            (parsed, tls.as_mut().and_then(|tls| tls.clients.as_mut()))
        {
            clients.name = Some(name);
        }
    }
    tls
}

/// TLS of the API, if it is enabled.
pub(in crate::settings) fn api(values: &mut Values) -> Option<PortTls> {
    let given =
        [API.certificate, API.key, API.authorities].map(|name| !values.text(name).is_empty());
    if given.contains(&true) {
        port(
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
fn port(values: &mut Values, names: &Names, need: &str) -> Option<PortTls> {
    let file = |variable: &'static str| {
        let path = values.text(variable);
        if path.is_empty() {
            return None;
        }
        Some(NamedFile {
            variable,
            path: path.into(),
        })
    };
    let chain = file(names.certificate);
    let key = file(names.key);
    let authorities = file(names.authorities);
    for (missing, what) in [(&chain, names.certificate), (&key, names.key)] {
        if missing.is_none() {
            values.problem(what, "", format!("expected the path of a file; {need}"));
        }
    }
    // Each file is checked, even if another one is missing.
    let clients = authorities.map(|authorities| Clients {
        authorities,
        name: None,
    });
    let tls = match (chain, key) {
        (Some(chain), Some(key)) => PortTls {
            pair: Pair { chain, key },
            clients,
            protocol: names.protocol,
        },
        (chain, key) => {
            let alone = chain.map(|chain| chain.certificates().err());
            let alone = alone
                .into_iter()
                .chain(key.map(|key| key.key().err()))
                .chain(clients.map(|own| own.verifier().err()));
            for flaw in alone.flatten() {
                values.problem(
                    flaw.file.variable,
                    &flaw.file.path.to_string_lossy(),
                    flaw.reason,
                );
            }
            return None;
        }
    };
    let flaws = tls.load().err().unwrap_or_default();
    for flaw in flaws {
        values.problem(
            flaw.file.variable,
            &flaw.file.path.to_string_lossy(),
            flaw.reason,
        );
    }
    Some(tls)
}
