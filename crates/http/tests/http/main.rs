//! The transport and the server, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod again;
mod answers;
mod busy;
mod delivery;
mod destinations;
mod fake;
mod figures;
mod foreign;
mod front;
mod hostile;
mod keys;
mod places;
mod plain;
mod post;
mod raw;
mod signing;
mod slow;
#[cfg(feature = "tls")]
mod tls;
mod world;
