//! The world outside of the database: what is done there cannot be undone.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use twobox_core::{Clock, HandlerResult, Message, Refusal, Response};
use twobox_sqlite::Sqlite;

use crate::billing;

/// A flaky order fails for this long.
const FLAKY: Duration = Duration::from_millis(15);

/// A file with a line for every effect.
#[derive(Clone, Debug)]
pub(crate) struct Outside(PathBuf);

impl Outside {
    /// The one beside this database.
    pub(crate) fn beside(database: &Path) -> Self {
        Self(database.with_extension("outside"))
    }

    /// Something is done about this message. Nothing here keeps it from being done twice.
    pub(crate) fn act(&self, id: &str) -> std::io::Result<()> {
        let mut file = std::fs::File::options().create(true).append(true).open(&self.0)?;
        file.write_all(format!("{id}\n").as_bytes())
    }

    /// Whether something was done about this message.
    pub(crate) fn knows(&self, id: &str) -> bool {
        std::fs::read_to_string(&self.0).is_ok_and(|text| text.lines().any(|line| line == id))
    }
}

/// When orders were first seen.
pub(crate) struct Young {
    clock: Arc<dyn Clock>,
    first_seen: Mutex<HashMap<i64, Duration>>,
}

impl Young {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, first_seen: Mutex::default() }
    }

    /// Whether the order was first seen just now. By time and not by count: a handler may run more than once in one
    /// delivery.
    pub(crate) fn is(&self, order: i64) -> bool {
        let now = self.clock.monotonic();
        let mut first_seen = self.first_seen.lock().unwrap_or_else(PoisonError::into_inner);
        now < *first_seen.entry(order).or_insert(now) + FLAKY
    }
}

/// Handles orders outside of the database.
pub(crate) struct Caller {
    billing: Sqlite,
    outside: Outside,
    young: Young,
}

impl Caller {
    pub(crate) fn new(billing: &Sqlite) -> Self {
        let young = Young::new(billing.clock());
        Self { billing: billing.clone(), outside: Outside::beside(billing.path()), young }
    }

    pub(crate) async fn call(&self, message: &Message) -> HandlerResult<Response> {
        let (order, kind): (i64, String) = serde_json::from_slice(message.payload.as_bytes())?;
        if kind.ends_with("flaky") && self.young.is(order) {
            return Err(Refusal::retry("not yet"));
        }
        if kind == "claimed kept" && !billing::is_mended(&self.billing).await? {
            return Err(Refusal::retry("not like this"));
        }
        self.outside.act(message.id.as_str())?;
        Ok(Response::empty())
    }
}
