//! What is logged, and in which form.

use super::read::Values;

/// What is logged, and in which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// The least severe level that is logged.
    pub level: tracing::Level,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text, with colours on a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

pub(super) fn build(values: &Values) -> Log {
    let level = match values.text("LOG_LEVEL").as_str() {
        "trace" => tracing::Level::TRACE,
        "debug" => tracing::Level::DEBUG,
        "info" => tracing::Level::INFO,
        "error" | "fatal" | "panic" => tracing::Level::ERROR,
        _ => tracing::Level::WARN,
    };
    let json = values.text("LOG_FORMAT").eq_ignore_ascii_case("json");
    Log { level, format: if json { LogFormat::Json } else { LogFormat::Text } }
}
