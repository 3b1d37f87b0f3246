//! Backup, verification and restore (RF-18).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod copy;
mod fixture;
mod instances;
mod resend;
mod restore;
mod schedule;
mod verify;
