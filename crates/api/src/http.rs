//! HTTP layer: routes, authentication, bodies, quotas and problems. It knows no noun of the API.

pub(crate) mod auth;
pub(crate) mod body;
pub mod duration_text;
pub(crate) mod enum_text;
pub(crate) mod json;
pub(crate) mod problem;
pub(crate) mod query;
pub(crate) mod quota;
pub(crate) mod request_id;
pub(crate) mod route;
pub(crate) mod time;
pub(crate) mod tokens;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also after a panic: each change of its data is complete or absent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
