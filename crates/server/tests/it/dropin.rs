//! In the place of the reference: its programs by their names, with the environments that others set for them.

mod config_check;
mod deployments;
mod limits_page;
mod migration;
mod programs;

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The folder `bin` of an image, and room for other files.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(root.path("bin")).unwrap();
        for name in ["ratelimit", "ratelimit_client", "ratelimit_config_check"] {
            symlink(env!("CARGO_BIN_EXE_tidegate"), root.path("bin").join(name)).unwrap();
        }
        root
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A program of the image, in an empty environment.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.path("bin").join(program));
        command
            .env_clear()
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs a program to its end: its code, what it printed, and what it complained of.
    fn run(&self, program: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(program).args(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }
}

/// Ports that were free a moment ago. They are held until the last is known, so they differ.
fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let held: [TcpListener; COUNT] =
        std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}
