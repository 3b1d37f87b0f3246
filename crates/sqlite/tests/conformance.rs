//! The SQLite store does what every store must do.

mod support;

use support::SqliteFixture;

twobox_testkit::store_conformance!(SqliteFixture);
