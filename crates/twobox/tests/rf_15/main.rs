//! RF-15: the ten failure scenarios of the source document, one test each under its title.
//!
//! Shop and billing are processes of their own (`examples/rf_15_shop.rs`, `examples/rf_15_billing.rs`) that really
//! die and are started again on the same files. They talk signed HTTP through a network that the test can break.
//! What came of it is read with plain SQL from both databases.

// Processes are killed by signals, and ports are kept by sharing them.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod both;
mod checks;
mod corruption;
mod gate;
mod network;
mod process;
#[cfg(feature = "crash-points")]
mod receiver;
#[cfg(feature = "crash-points")]
mod sender;
mod transit;
mod world;
