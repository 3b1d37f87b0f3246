//! What all log events of the engines share. docs/OBSERVABILITY.md lists them.
//!
//! Whatever comes from outside is recorded as text, never by its `Display`: subscribers escape text.

use std::time::Duration;

/// The target of events that come once per message when all goes well, so that they can be turned off by themselves.
pub(crate) use twobox_core::meters::MESSAGES;

/// A duration as the field `duration_ms` has it.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
