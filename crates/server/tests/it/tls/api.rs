//! The API over TLS, asked by the command line.

use std::process::Command;

use super::authority::borrowed;
use super::{Authority, Folder};
use crate::operate::process::Process;

fn tidegate(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.args(arguments).env_clear().output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn the_api_speaks_https_and_its_certificate_is_followed() {
    let (authority, folder) = (Authority::new("ours"), Folder::new());
    folder.put(&authority.issue("elsewhere.example"));
    folder.write("ca.pem", &authority.pem);
    let settings = [
        ("TIDEGATE_HTTP_ADDR", "127.0.0.1:0".to_owned()),
        ("TIDEGATE_DATA_DIR", folder.text("data")),
        ("TIDEGATE_TLS_CERT", folder.text("server.pem")),
        ("TIDEGATE_TLS_KEY", folder.text("server.key")),
    ];
    let server = Process::start(&borrowed(&settings));
    let address = server.address("API");
    let url = format!("https://{address}");
    assert!(
        server.banner.contains(&format!("{url}/v1")),
        "{}",
        server.banner
    );
    let ca = folder.text("ca.pem");
    let list = || tidegate(&["workflow", "list", "--server", &url, "--cacert", &ca]);
    let (code, text) = list();
    assert!(
        code == Some(69) && text.contains("it is for another name"),
        "{text}"
    );
    folder.put(&authority.issue("127.0.0.1"));
    crate::support::await_that("the new certificate is shown", || list().0 == Some(0));
    let (code, text) = tidegate(&["workflow", "list", "--server", &format!("http://{address}")]);
    assert!(
        code == Some(69) && text.contains("write https://"),
        "{text}"
    );
    server.signal("INT");
    assert_eq!(server.end().0, Some(0));
}
