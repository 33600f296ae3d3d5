//! What a text can ask for. A cost that grew with the square of these texts would take hours.

use super::shown::{read, shown};

const LONG: usize = 200_000;

#[test]
fn long_texts_of_every_kind_are_read_in_time() {
    for text in [
        format!("a: {}", "x".repeat(LONG)),
        format!("a: {}", "x ".repeat(LONG)),
        format!("a: {}", "x\n ".repeat(LONG)),
        format!("a: \"{}\"", "\\n".repeat(LONG)),
        format!("a: '{}'", "''\n\n".repeat(LONG)),
        format!("a: |\n{}", " x\n".repeat(LONG)),
        format!("a: >\n{}", "\n".repeat(LONG)),
        format!("{}a: b", "# c\n".repeat(LONG)),
        format!("a: b{}", " ".repeat(LONG)),
        format!("[{}]", "a: b, ".repeat(LONG / 10)),
        format!("{{{}}}", "\"a\":b,".repeat(LONG / 10)),
        "a:\n".repeat(LONG / 10),
        "- - -\n".repeat(LONG / 10),
        "- &a x\n- *a\n".repeat(LONG / 10),
        (0..LONG / 10)
            .map(|at| format!("a{at}: &a{at} x\n"))
            .collect(),
    ] {
        assert!(
            read(text.as_bytes()).is_ok(),
            "{:.50}: {:.200}",
            text,
            shown(text.as_bytes())
        );
    }
}

#[test]
fn a_file_may_have_hundreds_of_thousands_of_limits() {
    // A limit has nine nodes.
    let text = format!("[{}]", "1,".repeat(2_700_000));
    assert!(read(text.as_bytes()).is_ok());
}

#[test]
fn nesting_is_bounded() {
    for open in ["[", "- ", "? ", "{a: ", "[[", "{? ", "a: &x ["] {
        let found = shown(open.repeat(LONG / 10).as_bytes());
        assert!(!found.starts_with(['[', '{']), "{open}: {found:.100}");
    }
    let text = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(shown(text(100).as_bytes()), text(100));
    assert_eq!(
        shown(text(101).as_bytes()),
        "1:101: lists and maps are nested more than 100 deep"
    );
    let aliased = format!(
        "- &a {}\n- {}*a {}",
        text(60),
        "[".repeat(40),
        "]".repeat(40)
    );
    assert_eq!(
        shown(aliased.as_bytes()),
        "2:43: lists and maps are nested more than 100 deep"
    );
}

#[test]
fn aliases_are_bounded() {
    let mut bomb = "- &a0 x\n".to_owned();
    for level in 1..30 {
        bomb += &format!("- &a{level} [*a{0}, *a{0}]\n", level - 1);
    }
    assert_eq!(
        shown(bomb.as_bytes()),
        "19:15: aliases stand for more than 1000000 values"
    );
    let copies = format!("- &a {}\n{}", "x".repeat(100_000), "- *a\n".repeat(700));
    assert_eq!(
        shown(copies.as_bytes()),
        "641:3: aliases stand for more than 1000000 values"
    );
    assert_eq!(shown(b"&a [*a]"), "1:5: anchor 'a' value contains itself");
    assert_eq!(shown(b"{<<: *a}"), "1:6: unknown anchor 'a' referenced");
}

/// Each tag repeats the prefix that its handle stands for.
#[test]
fn prefixes_of_tags_are_bounded() {
    let text = |prefix: usize| format!("%TAG !a! {}\n---\n- !a!b c\n", "x".repeat(prefix));
    assert!(read(text(1024).as_bytes()).is_ok());
    assert_eq!(
        shown(text(1025).as_bytes()),
        "1:1: found a %TAG directive whose prefix is longer than 1024 bytes"
    );
}

#[test]
fn what_follows_the_first_document_is_told_but_not_read() {
    let rest = |text: &[u8]| {
        struct Texts;
        impl tidegate_yaml::Schema for Texts {
            type Scalar = String;

            fn scalar(text: String, _: tidegate_yaml::ScalarStyle<'_>) -> Result<String, String> {
                Ok(text)
            }
        }
        tidegate_yaml::parse::<Texts>(text, 100)
            .unwrap()
            .rest
            .map(|at| (at.line, at.column))
    };
    assert_eq!(rest(b"a: b\n...\n# c\n"), None);
    assert_eq!(rest(b"a: b\n---\n\xff"), Some((2, 1)));
    assert_eq!(rest(b"[a] b"), Some((1, 5)));
    assert_eq!(rest(b"a: b\n...\n\t"), Some((2, 1)));
    assert_eq!(rest(b"\xff\xfe#\0"), None);
}
