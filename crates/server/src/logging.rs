//! What is told on standard error while a node runs.

use std::io::{IsTerminal as _, stderr};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::config::{Log, LogFormat};

/// Begins to write log lines: text for people, JSON for machines. A second start changes nothing.
pub(crate) fn start(log: &Log) {
    let levels = log.level.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let layer = fmt::layer().with_writer(stderr);
    let layer = match log.format {
        LogFormat::Text => layer.with_ansi(stderr().is_terminal()).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(false).boxed(),
    };
    let _: Result<(), _> = tracing_subscriber::registry().with(layer.with_filter(levels)).try_init();
}
