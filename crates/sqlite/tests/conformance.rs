//! The SQLite store does what every store must do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::SqliteFixture;

twobox_testkit::store_conformance!(SqliteFixture);
