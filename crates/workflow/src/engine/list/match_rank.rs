//! Ranks of names that contain a text.

/// How well a name matches a text in lower case: 0 as a whole, 1 at its beginning, 2 elsewhere.
/// `None` if it does not contain the text.
#[must_use]
pub fn rank(name: &str, lowercase: &str) -> Option<u8> {
    let name = name.to_lowercase();
    match name.find(lowercase)? {
        0 if name.len() == lowercase.len() => Some(0),
        0 => Some(1),
        _ => Some(2),
    }
}
