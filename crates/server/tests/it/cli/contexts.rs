//! Names of servers, and which server a command calls.

use super::*;

/// The binary with a home of its own, and the tokens of nobody.
fn at_home(files: &Files, arguments: &[&str]) -> Ended {
    run(binary(arguments)
        .env("HOME", files.path(""))
        .current_dir(files.path("")))
}

#[test]
fn a_context_names_a_server_and_its_token() {
    let files = Files::new(&[
        ("tokens", "read eve secret-of-eve\n"),
        ("mine", "secret-of-eve\n"),
    ]);
    let flows = Flows::start(&[("TIDEGATE_TOKENS_FILE", &files.text("tokens"))]);
    let server = flows.api().to_string();
    let set = [
        "context",
        "set",
        "prod",
        "--server",
        &server,
        "--token-file",
        "mine",
    ];
    at_home(&files, &["context", "list"])
        .expect(DONE)
        .says("no contexts");
    at_home(&files, &["context", "use", "prod"])
        .expect(USAGE)
        .says("tidegate context set prod --server URL");
    at_home(&files, &set)
        .expect(DONE)
        .says("the current context");
    // The token file is found from any folder.
    let elsewhere = run(binary(&["queue", "list"])
        .env("HOME", files.path(""))
        .current_dir("/"));
    elsewhere.expect(DONE);
    let closed = ["context", "set", "closed", "--server", "http://127.0.0.1:1"];
    at_home(&files, &closed).expect(DONE);
    at_home(&files, &["queue", "list"]).expect(DONE);
    at_home(&files, &["queue", "list", "--context", "closed"]).expect(UNAVAILABLE);
    at_home(&files, &["context", "use", "closed"]).expect(DONE);
    at_home(&files, &["queue", "list"]).expect(UNAVAILABLE);
    at_home(&files, &["queue", "list", "--context", "prod"]).expect(DONE);
    let listed = at_home(&files, &["context", "list", "-o", "json"]).expect(DONE);
    assert_eq!(listed.json()[0]["name"], "closed");
    assert_eq!(listed.json()[0]["current"], true);
    assert!(!listed.out.contains("secret"), "{listed:?}");
    at_home(&files, &["context", "rm", "closed"]).expect(DONE);
    at_home(&files, &["context", "rm", "closed"])
        .expect(USAGE)
        .says("Contexts: prod");
}

/// A token of a context goes to the server of that context only.
#[test]
fn a_named_server_is_called_without_a_context() {
    let files = Files::new(&[
        ("mine", "secret-of-eve\n"),
        ("tokens", "read eve secret-of-eve\n"),
    ]);
    let flows = Flows::start(&[("TIDEGATE_TOKENS_FILE", &files.text("tokens"))]);
    let server = flows.api().to_string();
    let set = [
        "context",
        "set",
        "a",
        "--server",
        "127.0.0.1:1",
        "--token-file",
        "mine",
    ];
    at_home(&files, &set).expect(DONE);
    at_home(&files, &["queue", "list", "--server", &server])
        .expect(REFUSED)
        .says("TIDEGATE_TOKEN or --token-file");
    let variable = run(binary(&["queue", "list"])
        .env("HOME", files.path(""))
        .env("TIDEGATE_SERVER", &server));
    variable.expect(REFUSED);
    at_home(
        &files,
        &["queue", "list", "--context", "a", "--server", &server],
    )
    .expect(USAGE);
}

/// A token of the environment went to the server of a context without a token file.
#[test]
fn a_token_of_the_environment_is_not_for_a_context() {
    let files = Files::new(&[
        ("mine", "secret-of-eve\n"),
        ("tokens", "read eve secret-of-eve\n"),
    ]);
    let flows = Flows::start(&[("TIDEGATE_TOKENS_FILE", &files.text("tokens"))]);
    let server = flows.api().to_string();
    at_home(&files, &["context", "set", "a", "--server", &server]).expect(DONE);
    let list = |arguments: &[&str], more: &[(&str, &str)]| {
        let arguments = [&["queue", "list"], arguments].concat();
        run(binary(&arguments)
            .env("HOME", files.path(""))
            .env("TIDEGATE_TOKEN", "secret-of-eve")
            .envs(more.iter().copied())
            .current_dir(files.path("")))
    };
    let hint =
        "The context has no token file: tidegate context set NAME --server URL --token-file FILE";
    list(&[], &[]).expect(REFUSED).says(hint);
    let elsewhere = ("TIDEGATE_SERVER", "http://127.0.0.1:1");
    list(&["--context", "a"], &[elsewhere])
        .expect(REFUSED)
        .says(hint);
    list(&["--token-file", "mine"], &[]).expect(DONE);
    list(&[], &[("TIDEGATE_SERVER", &server)]).expect(DONE);
    // Nor are its certificates: this file does not exist.
    let authorities = ("TIDEGATE_CACERT", "/none");
    at_home(
        &files,
        &["context", "set", "b", "--server", "https://127.0.0.1:1"],
    )
    .expect(DONE);
    list(&["--context", "b"], &[authorities]).expect(UNAVAILABLE);
}

/// Of 20 contexts that were set at the same time one was left.
#[test]
fn contexts_that_are_set_at_the_same_time_are_all_kept() {
    let files = Files::new(&[]);
    std::thread::scope(|scope| {
        for number in 0..12 {
            let files = &files;
            scope.spawn(move || {
                let name = format!("c{number}");
                at_home(files, &["context", "set", &name, "--server", "box:1"]).expect(DONE);
            });
        }
    });
    let listed = at_home(&files, &["context", "list", "-o", "json"]).expect(DONE);
    assert_eq!(listed.json().as_array().map(Vec::len), Some(12));
}

#[test]
fn a_change_says_which_server_is_called() {
    let files = Files::new(&[]);
    let set = ["context", "set", "a", "--server", "box:1"];
    at_home(&files, &set).expect(DONE);
    at_home(&files, &["context", "use", "a"])
        .expect(DONE)
        .says("commands call box:1");
    let with_server = |arguments: &[&str]| {
        run(binary(arguments)
            .env("HOME", files.path(""))
            .env("TIDEGATE_SERVER", "http://other:1"))
    };
    with_server(&["context", "use", "a"])
        .expect(DONE)
        .says("TIDEGATE_SERVER is set, and commands call its server instead");
    at_home(&files, &["context", "rm", "a"])
        .expect(DONE)
        .says("commands call http://127.0.0.1:7070");
}

#[test]
fn a_file_of_contexts_is_bounded_and_has_no_password() {
    let files = Files::new(&[]);
    let long = format!("http://box/{}", "a".repeat(60_000));
    for name in ["a", "b", "c", "d"] {
        at_home(&files, &["context", "set", name, "--server", &long]).expect(DONE);
    }
    at_home(&files, &["context", "set", "e", "--server", &long])
        .expect(USAGE)
        .says("more than 256 KiB");
    at_home(&files, &["context", "rm", "a"]).expect(DONE);
    let path = files.path(".config/tidegate/contexts.json");
    for (text, reason) in [
        ("[]", "expected an object"),
        (
            r#"{"contexts": {"a": {"server": "http://u:secret@h"}}}"#,
            "the context 'a': the server's address has a user or a password",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let listed = at_home(&files, &["context", "list"]).expect(USAGE);
        assert!(!format!("{listed:?}").contains("secret"), "{listed:?}");
        listed.says(reason);
    }
}

#[test]
fn a_broken_file_of_contexts_says_where_and_is_kept() {
    let files = Files::new(&[]);
    std::fs::create_dir_all(files.path(".config/tidegate")).unwrap();
    let path = files.path(".config/tidegate/contexts.json");
    std::fs::write(&path, "{\"current\": 1}\n").unwrap();
    let set = ["context", "set", "a", "--server", "127.0.0.1:1"];
    for arguments in [&set[..], &["context", "list"], &["queue", "list"]] {
        at_home(&files, arguments)
            .expect(USAGE)
            .says("contexts.json")
            .says("line 1 column 13");
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "{\"current\": 1}\n"
    );
    let no_home = run(&mut binary(&set));
    no_home.expect(USAGE).says("HOME");
    for name in ["", "-a", "a b", "a/b", &"a".repeat(64)] {
        let set = ["context", "set", "--server", "127.0.0.1:1", "--", name];
        at_home(&files, &set).expect(USAGE);
    }
}
