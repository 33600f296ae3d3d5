//! Files that commands read and write.

use super::super::*;
use super::REPORT;

/// Creates a workflow of a file with this name and text, which must be refused with its place.
#[track_caller]
fn check(name: &str, text: &str, parts: &[&str]) {
    let flows = Flows::start(&[]);
    let files = Files::new(&[(name, text)]);
    let file = files.text(name);
    let ended = tidegate(&flows, &["workflow", "create", &file]).expect(USAGE);
    let begin = format!("error: {file}");
    for part in [&[&*begin], parts].concat() {
        assert!(ended.error.contains(part), "{part} in {}", ended.error);
    }
    assert_eq!(flows.get("/v1/workflows:count")["total"], 0);
}

#[test]
fn a_file_that_is_no_definition_is_refused_with_line_and_column() {
    let comma = "{\n\"name\": \"x\" \"jobs\"}";
    check("a.json", comma, &["a.json:2:13: expected `,` or `}`"]);
    let indented = "name: x\njobs:\n  - name: a\n   handler: h\n";
    check("a.yaml", indented, &["a.yaml:4:4: "]);
    let list = "a map with `name` and `jobs`";
    check("a.yaml", "- name: x\n", &[list]);
    let twice = "{\"name\":\"x\",\"name\":\"y\"}";
    check("a.json", twice, &["'name' is there twice"]);
    let flows = Flows::start(&[]);
    tidegate(&flows, &["workflow", "create", "/nowhere.yaml"])
        .expect(USAGE)
        .says("/nowhere.yaml cannot be read");
}

#[test]
fn a_bad_definition_is_refused_with_file_line_and_path() {
    let unknown = "{\"name\": \"x\", \"jobs\": [\n{\"name\": \"a\", \"handlr\": \"h\"}]}";
    let field = "a.json:2:15: unknown field `handlr`; did you mean `handler`?";
    check("a.json", unknown, &[field, "path: jobs[0].handlr"]);
    let parent = "name: x\njobs:\n  - name: a\n    handler: h\n    after: [b]\n";
    let parts = [
        "a.yaml:5:13: ",
        "there is no job 'b'",
        "code: unknown_dependency",
    ];
    check("a.yaml", parent, &parts);
    let circle = "name: x\njobs:\n  - {name: a, handler: h, after: b}\n  - {name: b, handler: h, after: a}\n";
    let parts = ["a.yaml:2:1: ", "a -> b -> a", "graph_cycle"];
    check("a.yaml", circle, &parts);
    let span = "name: x\njobs:\n  - {name: a, handler: h, timeout: 5}\n";
    let parts = [
        "a.yaml:3:27: ",
        "the number 5 has no unit",
        "path: jobs[0].timeout",
    ];
    check("a.yaml", span, &parts);
}

#[test]
fn a_definition_is_read_from_standard_input() {
    let flows = Flows::start(&[]);
    let files = Files::new(&[("r", REPORT), ("bad", "name: x\njobs: 7\n")]);
    let create = |name: &str| {
        run(ask(&flows, &in_json(&["workflow", "create", "-"]))
            .stdin(File::open(files.path(name)).unwrap()))
    };
    assert_eq!(create("r").expect(DONE).json()["name"], "report");
    create("bad")
        .expect(USAGE)
        .says("error: standard input:2:1: ");
}

#[test]
fn graphs_come_in_every_form() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a b<a"));
    for (form, begin) in [
        ("text", "• a"),
        ("svg", "<svg "),
        ("dot", "digraph {"),
        ("mermaid", "flowchart LR"),
        ("json", "{"),
    ] {
        let ended = tidegate(&flows, &["workflow", "graph", &id, "--form", form]).expect(DONE);
        assert!(ended.out.starts_with(begin), "{form}: {ended:?}");
    }
    let files = Files::new(&[]);
    tidegate(
        &flows,
        &[
            "workflow",
            "graph",
            &id,
            "-f",
            "svg",
            "--file",
            &files.text("g.svg"),
        ],
    )
    .expect(DONE);
    assert!(
        std::fs::read_to_string(files.path("g.svg"))
            .unwrap()
            .starts_with("<svg ")
    );
    tidegate(&flows, &["workflow", "graph", &id, "--file", "/nowhere/g"])
        .expect(74)
        .says("/nowhere/g cannot be written");
}

#[test]
fn a_drawing_that_does_not_fit_leaves_the_file_as_it_was() {
    let flows = Flows::start(&[]);
    let id = flows.create(workflow("w", "a b<a c<b"));
    let files = Files::new(&[("old.svg", "old")]);
    let draw = |file: &str, most: &str| {
        // A file larger than the limit cannot be written, as on a full disk.
        let script = format!("trap '' XFSZ; ulimit -f {most}; exec \"$@\"");
        let mut shell = Command::new("/bin/bash");
        shell.args([
            "-c",
            &script,
            "-",
            env!("CARGO_BIN_EXE_tidegate"),
            "workflow",
            "graph",
            &id,
            "-f",
            "svg",
            "--file",
        ]);
        run(shell
            .arg(file)
            .env_clear()
            .env("TIDEGATE_SERVER", flows.api().to_string()))
    };
    let names = || {
        let names = std::fs::read_dir(files.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    draw(&files.text("new.svg"), "0")
        .expect(OUTPUT)
        .says("new.svg cannot be written: ");
    draw(&files.text("old.svg"), "0").expect(OUTPUT);
    assert_eq!(
        (
            names(),
            std::fs::read_to_string(files.path("old.svg")).unwrap()
        ),
        (vec!["old.svg".into()], "old".into())
    );
    draw(&files.text("old.svg"), "unlimited").expect(DONE);
    draw(&files.text("new.svg"), "unlimited").expect(DONE);
    assert_eq!(names(), ["new.svg", "old.svg"]);
    assert!(
        std::fs::read_to_string(files.path("old.svg"))
            .unwrap()
            .starts_with("<svg ")
    );
    draw("/dev/stdout", "unlimited").expect(DONE).says("<svg ");
}
