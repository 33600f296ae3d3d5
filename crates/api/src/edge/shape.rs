//! What is wrong with a body, in the words of JSON: serde's own texts name types of Rust.

/// What the reader of a body says about JSON of a wrong shape, for people.
pub(crate) fn plain(said: &str) -> String {
    let said = without_position(said);
    let Some((kind, rest)) = said.split_once([':', ' ']) else {
        return said.to_owned();
    };
    match kind {
        "invalid" => wrong_value(rest).unwrap_or_else(|| said.to_owned()),
        "unknown" => unknown(rest).unwrap_or_else(|| said.to_owned()),
        "duplicate" => format!("the {rest} appears twice"),
        "lone" | "unexpected" => {
            "a string has half of a surrogate pair, which is not a character".to_owned()
        }
        "number" => "the number is too large".to_owned(),
        // So begins what a type of ours says of itself.
        "expected" if rest.starts_with("a ") => said.to_owned(),
        // The reader of a word that is one of a set says so about all that is not a string.
        "expected" | "key" => "expected a string".to_owned(),
        _ => said.to_owned(),
    }
}

/// What the reader says about a body that is not JSON, for people.
pub(crate) fn not_json(body: &[u8], said: &str) -> String {
    if body.trim_ascii().is_empty() {
        return "the body is empty; expected JSON".to_owned();
    }
    let reason = without_position(said);
    let position = &said[reason.len()..];
    let reason = match reason {
        "expected ident" => "expected true, false or null",
        "expected value" => "expected a value",
        "trailing characters" => "there is more after its end",
        "key must be a string" => "expected a name in double quotes",
        "trailing comma" => "a comma must be followed by another item",
        _ if reason.starts_with("EOF") => "it ends too early",
        _ => reason,
    };
    format!("the body is not JSON: {reason}{position}")
}

fn without_position(said: &str) -> &str {
    said.rsplit_once(" at line ")
        .map_or(said, |(reason, _)| reason)
}

/// After "invalid": `type: FOUND, expected WANTED`, the same with `value`, or `length N, expected WANTED`.
fn wrong_value(rest: &str) -> Option<String> {
    // Both may have commas; what is found may also be any text, in quotes.
    let (found, wanted) = rest.rsplit_once(", expected ")?;
    let found = match found.split_once(": ") {
        Some((_, found)) => self::found(found),
        // Objects are also read from lists, of which this one has the wrong length.
        None => "a list",
    };
    Some(format!("expected {}, got {found}", self::wanted(wanted)))
}

/// After "unknown": `variant FOUND, expected WORDS`, or `field FOUND, there are no fields`.
fn unknown(rest: &str) -> Option<String> {
    if let Some(field) = rest.strip_suffix(", there are no fields") {
        return Some(format!("unknown {field}: this call has no fields"));
    }
    let (found, words) = rest
        .strip_prefix("variant `")?
        .rsplit_once("`, expected ")?;
    Some(format!("expected {words}, got '{found}'"))
}

fn found(said: &str) -> &str {
    match said {
        "map" => "an object",
        "sequence" => "a list",
        _ => match said.split_once(' ') {
            Some(("integer" | "boolean", value)) => value.trim_matches('`'),
            Some(("floating", value)) => value.trim_start_matches("point ").trim_matches('`'),
            Some(("string", text)) => text,
            _ => said,
        },
    }
}

fn wanted(said: &str) -> &str {
    match said {
        "a sequence" => "a list",
        "a map" => "an object",
        "a boolean" => "true or false",
        "unit" => "no value",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number of 0 or more",
        _ if said.starts_with("struct ") => "an object",
        _ => said
            .rsplit_once(" with ")
            .filter(|(_, rest)| rest.ends_with(" elements"))
            .map_or(said, |(wanted, _)| wanted),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::body::{self, Names, NoBody, Span};

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        Succeeded,
        GivenBack,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, expecting = "an object with `kind`")]
    #[expect(dead_code, reason = "only read")]
    struct Named {
        kind: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Everything {
        byte: Option<u8>,
        short: Option<u16>,
        size: Option<usize>,
        flag: Option<bool>,
        text: Option<String>,
        list: Option<Vec<String>>,
        word: Option<Word>,
        named: Option<Named>,
        span: Option<Span>,
        names: Option<Names>,
    }

    #[test]
    fn mistakes_are_told_in_the_words_of_json() {
        let check = |json: &str, path: &str, detail: &str| {
            let problem = body::read::<Everything>(json.as_bytes()).unwrap_err();
            assert_eq!(
                (problem.word(), problem.path(), problem.detail()),
                ("invalid_field", Some(path), detail),
                "{json}"
            );
        };
        check(
            r#"{"byte":300}"#,
            "byte",
            "expected a whole number from 0 to 255, got 300",
        );
        check(
            r#"{"byte":0.5}"#,
            "byte",
            "expected a whole number from 0 to 255, got 0.5",
        );
        check(
            r#"{"byte":true}"#,
            "byte",
            "expected a whole number from 0 to 255, got true",
        );
        check(
            r#"{"short":-1}"#,
            "short",
            "expected a whole number from 0 to 65535, got -1",
        );
        check(
            r#"{"size":"a, expected b"}"#,
            "size",
            r#"expected a whole number of 0 or more, got "a, expected b""#,
        );
        check(
            r#"{"flag":[]}"#,
            "flag",
            "expected true or false, got a list",
        );
        check(r#"{"text":{}}"#, "text", "expected a string, got an object");
        check(r#"{"list":{}}"#, "list", "expected a list, got an object");
        check(
            r#"{"list":[null]}"#,
            "list[0]",
            "expected a string, got null",
        );
        check(
            r#"{"word":"succeded"}"#,
            "word",
            "expected `succeeded` or `given_back`, got 'succeded'",
        );
        check(r#"{"word":5}"#, "word", "expected a string");
        check(
            r#"{"word":{"succeeded":1}}"#,
            "word.succeeded",
            "expected no value, got 1",
        );
        check(
            r#"{"named":"x"}"#,
            "named",
            r#"expected an object with `kind`, got "x""#,
        );
        check(
            r#"{"named":[]}"#,
            "named",
            "expected an object with `kind`, got a list",
        );
        check(r#"{"named":{}}"#, "named.kind", "missing field `kind`");
        check(
            r#"{"named":{"kind":"a","kind":"b"}}"#,
            "named.kind",
            "the field `kind` appears twice",
        );
        check(
            r#"{"named":{"kin":"a"}}"#,
            "named.kin",
            "unknown field `kin`, expected `kind`",
        );
        let span = r#"expected a time span such as "30s", "1h30m" or "500ms", of at most 36500 days, got "soon""#;
        check(r#"{"span":"soon"}"#, "span", span);
        check(
            r#"{"names":{}}"#,
            "names",
            "expected a name or a list of names, got an object",
        );
        check(
            r#"{"text":"\ud800"}"#,
            "text",
            "a string has half of a surrogate pair, which is not a character",
        );
        check("[]", "", "expected an object, got a list");
        check("7", "", "expected an object, got 7");
        let none = body::read::<NoBody>(br#"{"for":1}"#).unwrap_err();
        assert_eq!(
            none.detail(),
            "unknown field `for`: this call has no fields"
        );
    }

    #[test]
    fn a_body_that_is_not_json_is_told_where_it_ends_to_be() {
        let check = |json: &str, detail: &str| {
            let problem = body::read::<Everything>(json.as_bytes()).unwrap_err();
            assert_eq!(
                (problem.word(), problem.path(), problem.detail()),
                ("invalid_json", None, detail),
                "{json}"
            );
        };
        check("", "the body is empty; expected JSON");
        check(
            "not",
            "the body is not JSON: expected true, false or null at line 1 column 2",
        );
        check(
            "{",
            "the body is not JSON: it ends too early at line 1 column 1",
        );
        check(
            "{} 1",
            "the body is not JSON: there is more after its end at line 1 column 4",
        );
        check(
            "{\n 'a': 1}",
            "the body is not JSON: expected a name in double quotes at line 2 column 2",
        );
        check(
            r#"{"other": 01}"#,
            "the body is not JSON: invalid number at line 1 column 12",
        );
        check(
            r#"{"word":}"#,
            "the body is not JSON: expected a value at line 1 column 9",
        );
    }
}
