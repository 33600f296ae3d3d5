//! The command line: the real binary against a real server, with its output on a pipe or on a terminal.

mod contexts;
mod documents;
mod filters;
mod follow;
mod forms;
mod golden;
mod hostile;
mod log;
mod outcomes;
mod screen;
mod silent;
mod store;
mod tls;
mod verbs;
mod words;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::workflows::{Flows, workflow};

/// The exit codes, as docs/cli.md has them.
const DONE: i32 = 0;
const FAILED: i32 = 1;
const CANCELLED: i32 = 2;
const TIMED_OUT: i32 = 3;
const NOT_FOUND: i32 = 4;
const REFUSED: i32 = 5;
const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;
const OUTPUT: i32 = 74;
const INTERRUPTED: i32 = 130;
const UNREAD: i32 = 141;

/// How a command ended, and what it said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    code: Option<i32>,
    pub(crate) out: String,
    error: String,
}

impl Ended {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// The output, which must be one JSON text.
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    #[track_caller]
    fn says(self, part: &str) -> Self {
        assert!(
            self.out.contains(part) || self.error.contains(part),
            "no {part:?} in {self:#?}"
        );
        self
    }
}

/// The binary with these arguments, and nothing of the environment of the tests.
fn binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.env_clear().args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command to its end, its output on pipes.
fn run(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code(),
        out: text(output.stdout),
        error: text(output.stderr),
    }
}

/// Runs a command to its end, all of its output on a terminal of so many columns.
fn on_terminal(command: &mut Command, columns: u16) -> (Option<i32>, String) {
    let (ours, theirs) = terminal(columns);
    read_terminal(command, ours, theirs)
}

/// The same, with a person who types `answer`.
fn typed(command: &mut Command, answer: &str) -> (Option<i32>, String) {
    let (mut ours, theirs) = terminal(80);
    ours.write_all(answer.as_bytes()).unwrap();
    command.stdin(theirs.try_clone().unwrap());
    read_terminal(command, ours, theirs)
}

/// Both ends of a terminal: what a person has, and what a program has.
fn terminal(columns: u16) -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let size = rustix::termios::Winsize {
        ws_row: 40,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&ours, size).unwrap();
    (
        File::from(ours),
        File::options().read(true).write(true).open(name).unwrap(),
    )
}

fn read_terminal(command: &mut Command, ours: File, theirs: File) -> (Option<i32>, String) {
    Asking::on(command, ours, theirs).answer("")
}

/// A command on a terminal, which a person can answer when it asks.
struct Asking {
    child: Child,
    ours: File,
    seen: Vec<u8>,
}

impl Asking {
    fn start(command: &mut Command) -> Self {
        let (ours, theirs) = terminal(80);
        command.stdin(theirs.try_clone().unwrap());
        Self::on(command, ours, theirs)
    }

    fn on(command: &mut Command, ours: File, theirs: File) -> Self {
        let child = command
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs)
            .spawn()
            .unwrap();
        // The command keeps the terminal open, too.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self {
            child,
            ours,
            seen: Vec::new(),
        }
    }

    /// Reads some; false when nobody has the other end any more, which is an error.
    fn read(&mut self) -> bool {
        let mut some = [0; 4096];
        let length = self.ours.read(&mut some).unwrap_or(0);
        self.seen.extend_from_slice(&some[..length]);
        length > 0
    }

    #[track_caller]
    fn read_until(&mut self, end: &str) {
        while !self.seen.ends_with(end.as_bytes()) {
            assert!(
                self.read(),
                "it ended with {:?}",
                String::from_utf8_lossy(&self.seen)
            );
        }
    }

    /// Types this, and reads to the end.
    fn answer(mut self, text: &str) -> (Option<i32>, String) {
        self.ours.write_all(text.as_bytes()).unwrap();
        while self.read() {}
        (
            self.child.wait().unwrap().code(),
            String::from_utf8(self.seen).unwrap().replace("\r\n", "\n"),
        )
    }
}

/// What is seen of a text, without colours.
fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |seen, part| {
        seen + part
            .split_once(|end: char| end.is_ascii_alphabetic())
            .map_or("", |(_, rest)| rest)
    })
}

/// A command that asks the server of `flows`.
fn ask(flows: &Flows, arguments: &[&str]) -> Command {
    let mut command = binary(arguments);
    command.env("TIDEGATE_SERVER", flows.api().to_string());
    command
}

/// Asks the server of `flows`, with the output on pipes; in JSON, unless another form is named or there is none.
pub(crate) fn tidegate(flows: &Flows, arguments: &[&str]) -> Ended {
    run(&mut ask(flows, &in_json(arguments)))
}

fn in_json<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let has_form = arguments
        .iter()
        .any(|word| ["-o", "graph", "viz"].contains(word));
    let form: &[&str] = if has_form { &[] } else { &["-o", "json"] };
    [arguments, form].concat()
}

/// A folder with files.
struct Files(TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

/// Works off everything that is ready; jobs of the handler `bad` fail.
fn work(flows: &Flows) {
    loop {
        let jobs = flows.claim(10);
        if jobs.is_empty() {
            return;
        }
        for job in &jobs {
            match job["handler"].as_str() {
                Some("bad") => flows.fail(job),
                _ => flows.succeed(job, serde_json::json!({"rows": 3})),
            };
        }
    }
}

/// Creates a workflow that fails in its first job.
fn failing(flows: &Flows) -> String {
    let mut body = workflow("broken", "fetch send<fetch");
    body["jobs"][0]["handler"] = "bad".into();
    flows.create(body)
}
