//! A service on SQLite: one name, one database, an outbox, an inbox and what runs them.

mod builder;
mod context;
mod inbox;
mod modes;
mod outbox;
mod service;
mod signal;

pub use self::builder::Builder;
pub use self::context::Context;
pub use self::inbox::{Inbox, NewWork};
pub use self::outbox::Outbox;
pub use self::service::{Running, Twobox};
pub use self::signal::Signal;
