//! The outbox: lanes, log, waiting rows, dead letters.

pub(crate) mod dead_letters;
mod inspect;
mod keys;
pub(crate) mod lanes;
mod log;
mod resend;
pub(crate) mod routes;
mod waiting;

pub use self::inspect::MessageStatus;

use twobox_core::{Error, ErrorKind};

/// The error of every write whose lease is not current.
fn lease_lost(lane: i64) -> Error {
    Error::new(
        ErrorKind::LeaseLost,
        format!("lane {lane} is leased to somebody else, or the database was reopened"),
    )
}
