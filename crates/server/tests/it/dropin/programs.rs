//! `ratelimit_client`, and what the name of the server changes.

use super::Root;
use crate::support::Server;
use crate::tls::authority::{Authority, Folder, borrowed};

/// What the client prints of its flags.
fn flags(descriptors: &str, address: &str, domain: &str) -> String {
    format!(
        "Flag: --descriptors=\"{descriptors}\"\nFlag: --dial_string=\"{address}\"\nFlag: --domain=\"{domain}\"\n\
         Flag: --grpc-cert-file=\"\"\nFlag: --grpc-key-file=\"\"\nFlag: --grpc-server-ca-file=\"\"\n\
         Flag: --grpc-use-tls=\"false\"\nFlag: --oltp-protocol=\"\"\n"
    )
}

#[test]
fn the_client_prints_its_flags_and_the_answer() {
    let (server, root) = (Server::start(&[]), Root::new());
    let address = server.grpc().to_string();
    let arguments = [
        "-dial_string",
        &address,
        "--domain=shop",
        "-descriptors",
        "user=ada",
        "-descriptors",
        "plan=gold,user=ada",
    ];
    let shown = "[ <key=user, value=ada> ] [ <key=plan, value=gold>  <key=user, value=ada> ] ";
    let limit = |requests: u32| format!("current_limit:{{requests_per_unit:{requests} unit:HOUR}}");
    for (left, code, over) in [(2, "OK", false), (1, "OK", false), (0, "OVER_LIMIT", true)] {
        let (ended, out, error) = root.run("ratelimit_client", &arguments);
        assert_eq!((ended, error.as_str()), (Some(0), ""), "{out}");
        let (head, answer) = out.split_at(flags(shown, &address, "shop").len());
        assert_eq!(head, flags(shown, &address, "shop"));
        let remaining = |left: u32| {
            if left > 0 {
                format!(" limit_remaining:{left}")
            } else {
                String::new()
            }
        };
        let begin = format!(
            "response: overall_code:{code} statuses:{{code:OK {}{} duration_until_reset:{{seconds:",
            limit(3),
            remaining(left)
        );
        assert!(answer.starts_with(&begin), "{answer}\n{begin}");
        let second = format!("statuses:{{code:{code} {}", limit(2));
        assert!(
            answer.contains(&second) && answer.ends_with("}}\n"),
            "{answer}\n{second}"
        );
        assert_eq!(answer.contains("OVER_LIMIT"), over, "{answer}");
    }
}

#[test]
fn what_fails_is_said_by_the_client_with_code_1() {
    let (server, root) = (Server::start(&[]), Root::new());
    let address = server.grpc().to_string();
    let (code, out, _) = root.run("ratelimit_client", &["-dial_string", &address]);
    let error =
        "request error: rpc error: code = Unknown desc = rate limit domain must not be empty\n";
    assert_eq!((code, out), (Some(1), flags("", &address, "") + error));
    let (code, out, _) = root.run(
        "ratelimit_client",
        &["-dial_string=127.0.0.1:1", "-domain=a"],
    );
    let error =
        "request error: rpc error: code = Unavailable desc = 127.0.0.1:1 cannot be reached: ";
    assert!(code == Some(1) && out.contains(error), "{out}");
    let (code, out, _) = root.run(
        "ratelimit_client",
        &["-grpc-use-tls", "-grpc-server-ca-file=/nowhere"],
    );
    let error = "\nerror connecting: -grpc-server-ca-file='/nowhere': cannot read the file: ";
    assert!(code == Some(1) && out.contains(error), "{out}");
}

#[test]
fn mistakes_in_flags_end_with_code_2_and_the_list_of_flags() {
    let root = Root::new();
    for (argument, expected) in [
        (
            "-descriptors=a",
            "invalid value \"a\" for flag -descriptors: invalid descriptor list\n",
        ),
        (
            "-descriptors=a=b=c",
            "invalid value \"a=b=c\" for flag -descriptors: invalid descriptor list\n",
        ),
        ("-other", "flag provided but not defined: -other\n"),
    ] {
        let (code, out, error) = root.run("ratelimit_client", &[argument]);
        assert_eq!((code, out.as_str()), (Some(2), ""));
        assert!(
            error.starts_with(&format!(
                "{expected}Usage of ratelimit_client:\n  -descriptors value\n"
            )),
            "{error}"
        );
    }
    let (code, out, error) = root.run("ratelimit_config_check", &["--help"]);
    assert_eq!((code, out.as_str()), (Some(0), ""));
    assert!(
        error.starts_with("Usage of ratelimit_config_check:\n  -config_dir string\n    \t"),
        "{error}"
    );
    let (code, out, _) = root.run("ratelimit_client", &["-oltp-protocol=smoke"]);
    assert!(
        code == Some(2) && out.ends_with("Invalid otlptrace client protocol: smoke\n"),
        "{out}"
    );
}

#[test]
fn the_client_shows_its_certificate() {
    let (authority, folder, root) = (Authority::new("ours"), Folder::new(), Root::new());
    folder.put(&authority.issue("127.0.0.1"));
    folder.write("ca.pem", &authority.pem);
    let mut settings = folder.grpc().to_vec();
    settings.push(("GRPC_CLIENT_TLS_CACERT", folder.text("ca.pem")));
    let server = Server::start(&borrowed(&settings));
    let address = server.grpc().to_string();
    let call = |more: &[&str]| {
        let ca = format!("-grpc-server-ca-file={}", folder.text("ca.pem"));
        let call = [
            "-dial_string",
            &address,
            "-domain=shop",
            "-descriptors=free=x",
            "-grpc-use-tls",
            &ca,
        ];
        root.run("ratelimit_client", &[&call, more].concat())
    };
    let (code, out, _) = call(&[]);
    assert!(
        code == Some(1) && out.contains("request error: "),
        "it was let in without a certificate: {out}"
    );
    assert!(
        out.contains("CertificateRequired"),
        "it does not say why: {out}"
    );
    let (chain, key) = (folder.text("server.pem"), folder.text("server.key"));
    let (code, out, _) = call(&["-grpc-cert-file", &chain, "-grpc-key-file", &key]);
    assert!(
        code == Some(0) && out.contains("response: overall_code:OK statuses:{code:OK"),
        "{out}"
    );
}

/// Without a variable, the reference's server looks for Redis and files where its image has them.
#[test]
fn under_its_name_the_server_has_the_references_defaults() {
    let root = Root::new();
    let (code, out, error) = root.run("ratelimit", &["settings"]);
    // Also where this folder is.
    let ends = error.contains("RUNTIME_ROOT /srv/runtime_data/current does not exist");
    assert_eq!(code, Some(if ends { 64 } else { 0 }), "{out}{error}");
    for line in [
        "USE_STATSD=true",
        "REDIS_URL=/var/run/nutcracker/ratelimit.sock",
        "RUNTIME_ROOT=/srv/runtime_data/current",
        "TIDEGATE_HTTP_ADDR=",
    ] {
        assert!(
            out.lines().any(|other| other == line),
            "{line} is not in\n{out}"
        );
    }
    let mut command = root.command("ratelimit");
    let output = command
        .env("USE_STATSD", "false")
        .env("REDIS_URL", "127.0.0.1:1")
        .output()
        .unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(
        log.contains("RUNTIME_ROOT /srv/runtime_data/current does not exist"),
        "no sample is served: {log}"
    );
}
