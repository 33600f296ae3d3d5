//! All mistakes of a definition, for a person who corrects a file. A server answers with the first.

use serde_json::Value;

use super::{DefinitionMistake, first_mistake};

/// Limit of mistakes that are found in one definition. A person corrects them in several rounds.
const MAX_MISTAKES: usize = 20;

/// Checks the JSON of a definition as `POST /v1/workflows` does, and returns its mistakes. What is
/// behind a mistake is found by taking it out. A mistake in the structure as a whole, such as a
/// cycle, is the last one.
#[must_use]
pub fn check_definition(json: &str) -> Vec<DefinitionMistake> {
    let mut mistakes: Vec<DefinitionMistake> = Vec::new();
    let mut repaired: Option<Value> = None;
    while mistakes.len() < MAX_MISTAKES {
        let text = repaired.as_ref().map(Value::to_string);
        let Some(mistake) = first_mistake(text.as_deref().unwrap_or(json)) else {
            break;
        };
        let mut value = match repaired.take() {
            Some(value) => value,
            None => serde_json::from_str(json).unwrap_or_default(),
        };
        let path = mistake.path.clone().unwrap_or_default();
        mistakes.push(mistake);
        let placeholder = format!("mistake-{}", mistakes.len());
        if !take_out(&mut value, &path, placeholder) {
            break;
        }
        repaired = Some(value);
    }
    mistakes
}

/// Takes out the field at a path such as `jobs[3].after[0]`, or its parent if it is an item of a
/// list. Required fields get `placeholder` instead. Returns whether that was possible.
fn take_out(root: &mut Value, path: &str, placeholder: String) -> bool {
    let steps = path.split(['.', '[', ']']);
    let mut steps: Vec<&str> = steps.filter(|step| !step.is_empty()).collect();
    let mut wanted = root;
    // An item of a list cannot be taken out: the places of the others would change.
    while steps
        .last()
        .is_some_and(|step| step.parse::<usize>().is_ok())
    {
        steps.pop();
    }
    let Some(field) = steps.pop().filter(|field| *field != "jobs") else {
        return false;
    };
    for step in steps {
        let next = match step.parse::<usize>() {
            Ok(index) => wanted.get_mut(index),
            Err(_) => wanted.get_mut(step),
        };
        let Some(next) = next else { return false };
        wanted = next;
    }
    let Some(object) = wanted.as_object_mut() else {
        return false;
    };
    if ["name", "handler"].contains(&field) {
        object.insert(field.to_owned(), placeholder.into());
        return true;
    }
    object.remove(field).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mistakes_are_found() {
        let check = |json: &str, expected: &[&str]| {
            let found = check_definition(json);
            let paths = found.iter().map(|mistake| mistake.path.as_deref());
            let paths: Vec<&str> = paths.map(Option::unwrap_or_default).collect();
            assert_eq!(paths, expected, "{json}: {found:?}");
        };
        check(r#"{"name":"w","jobs":[{"handler":"a"}]}"#, &[]);
        check("{", &[""]);
        check("{}", &["name", "jobs"]);
        check(
            r#"{"name":"w","jobs":[{"handler":"a","retrys":3},{"handler":"b","after":["a","x"],"timeout":5},{}],"tgs":[]}"#,
            &[
                "jobs[0].retrys",
                "jobs[1].timeout",
                "jobs[2].handler",
                "tgs",
                "jobs[1].after[1]",
            ],
        );
        let cycle =
            r#"{"name":"","jobs":[{"handler":"a","after":"b"},{"handler":"b","after":"a"}]}"#;
        check(cycle, &["name", "jobs"]);
        let many: Vec<String> = (0..50)
            .map(|at| format!(r#"{{"handler":"h{at}","x":1}}"#))
            .collect();
        let many = format!(r#"{{"name":"w","jobs":[{}]}}"#, many.join(","));
        assert_eq!(check_definition(&many).len(), MAX_MISTAKES);
    }
}
