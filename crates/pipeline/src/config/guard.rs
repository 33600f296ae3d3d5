//! Calls functions of the caller, which may panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a function of the caller. Its panic must not end the task that calls it: nothing would start that task again.
///
/// # Errors
/// It panicked; the text names `what` and says why.
pub(crate) fn guarded<T>(what: &str, call: impl FnOnce() -> T) -> Result<T, String> {
    // What the function leaves half done is the caller's own.
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|panic| format!("the {what} panicked: {}", message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason was given")
}
