//! The transport and the server, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod delivery;
mod world;
