//! Level and format of the log.

use super::read::Values;

/// Level and format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// Least severe level that is logged.
    pub level: tracing::Level,
    /// Format of a line.
    pub format: LogFormat,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Plain text, with colours on a terminal.
    Text,
    /// Plain text without colours.
    Colourless,
    /// One JSON object per line.
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
    let format = match values.text("LOG_FORMAT") {
        format if format.eq_ignore_ascii_case("json") => LogFormat::Json,
        _ if values.text("NO_COLOR").is_empty() => LogFormat::Text,
        _ => LogFormat::Colourless,
    };
    Log { level, format }
}
