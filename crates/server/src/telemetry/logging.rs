//! Log lines on standard error.

mod lines;

use std::fmt;
use std::io::{self, IsTerminal as _};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;

use crate::settings::{LogFormat, LogSettings};
use lines::LogQueue;

/// Target of the lines that say what the server does as a whole: limits were loaded, it drains, it
/// has stopped. They are logged at the default level too, although they are no warnings.
pub(crate) const LIFECYCLE: &str = "lifecycle";

/// The log. Its drop writes the lines so far, if standard error is read.
#[derive(Debug)]
pub(crate) struct Logging(LogQueue);

impl Drop for Logging {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Starts logging. A second call has no effect.
///
/// # Errors
/// The system refuses to start a thread.
pub(crate) fn start(settings: LogSettings) -> io::Result<Logging> {
    let lines = LogQueue::start(io::stderr())?;
    let level = LevelFilter::from(settings.level);
    // The line of h2 for each frame would hide the decisions, so `debug` omits it, and `trace`
    // shows it.
    let frames = if level == LevelFilter::DEBUG {
        LevelFilter::WARN
    } else {
        level
    };
    let lifecycle = if level == LevelFilter::WARN {
        LevelFilter::INFO
    } else {
        level
    };
    let filter = Targets::new()
        .with_default(level)
        .with_target("h2", frames)
        .with_target(LIFECYCLE, lifecycle);
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_max_level(level.max(lifecycle));
    // Only the first call has an effect, as documented.
    let _ = match settings.format {
        LogFormat::Text | LogFormat::Colourless => {
            let has_colours = settings.format == LogFormat::Text && io::stderr().is_terminal();
            tracing::subscriber::set_global_default(
                subscriber
                    .with_ansi(has_colours)
                    .with_target(false)
                    .finish()
                    .with(filter),
            )
        }
        LogFormat::Json => tracing::subscriber::set_global_default(
            subscriber.event_format(JsonLines).finish().with(filter),
        ),
    };
    Ok(Logging(lines))
}

/// JSON formatter with one object per line. Time, message and level have the names of the
/// reference.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = JsonFields(Map::new());
        event.record(&mut fields);
        let mut object = fields.0;
        let message = object.remove("message").unwrap_or_default();
        object.insert("@timestamp".to_owned(), time.into());
        object.insert("@message".to_owned(), message);
        object.insert("level".to_owned(), level(*event.metadata().level()).into());
        writeln!(writer, "{}", Value::Object(object))
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::TRACE => "trace",
        Level::DEBUG => "debug",
        Level::INFO => "info",
        Level::WARN => "warning",
        Level::ERROR => "error",
    }
}

struct JsonFields(Map<String, Value>);

impl Visit for JsonFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }
}

impl JsonFields {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}
