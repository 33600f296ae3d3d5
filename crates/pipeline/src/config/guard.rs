//! Calls functions of the user, which may panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a function of the user. A panic must not end the calling task, because no code would
/// restart it.
///
/// # Errors
/// The function panicked. The text names `what` and the reason.
pub(crate) fn guarded<T>(what: &str, call: impl FnOnce() -> T) -> Result<T, String> {
    // State that the function leaves inconsistent belongs to the user.
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|panic| format!("the {what} panicked: {}", message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason was given")
}
