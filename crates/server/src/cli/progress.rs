//! How far long work has come: on standard error, and only if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of this length.
pub(super) fn bar(length: u64, unit: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    let template =
        format!("{{bar:40}} {{human_pos}} of {{human_len}} {unit}, {{elapsed}} gone, {{eta}} to go");
    bar.with_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Something that turns while nobody knows how long it takes.
pub(super) fn spinner(doing: String) -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_message(doing);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}
