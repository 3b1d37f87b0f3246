//! All figures as a page for Prometheus (RF-21). docs/OBSERVABILITY.md says what each means.
//!
//! A page is made of what the process has counted ([`Meters`]) and of counters that the store maintains and that
//! survive restarts. Nothing is counted because somebody asks, so asking costs a fraction of a millisecond, however much
//! is kept.

mod families;
mod text;

use twobox_core::Timestamp;
use twobox_core::meters::Meters;
use twobox_core::one_line;
use twobox_core::ports::OpsStore;
use twobox_core::ports::ops::{InboxStats, OutboxStats};

use self::families::FAMILIES;
use self::text::Page;

/// The media type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a page shows.
#[derive(Clone, Debug)]
pub struct Readings<'a> {
    /// What the process has counted.
    pub meters: &'a Meters,
    /// What the store says of its outbox; `None` if it says nothing.
    pub outbox: Option<&'a OutboxStats>,
    /// What the store says of its inbox; `None` if it says nothing.
    pub inbox: Option<&'a InboxStats>,
    /// The store's time, from which ages are counted.
    pub now: Timestamp,
}

/// Writes the page.
#[must_use]
pub fn render(readings: &Readings<'_>) -> String {
    let mut page = Page::default();
    for family in FAMILIES {
        page.begin(family.name, family.kind, family.help);
        (family.write)(readings, &mut page);
    }
    page.into_text()
}

/// Reads what the store maintains and writes the page. A store that cannot be read takes nothing away from what the
/// process itself has counted: the page says so.
pub async fn scrape<S: OpsStore>(store: &S, meters: &Meters, now: Timestamp) -> String {
    let logged = |error: &twobox_core::Error| {
        tracing::warn!(error = one_line(error), "cannot read the store's figures");
    };
    // No rows are looked at: what each lane has pending in the log is not asked for, and the oldest is the relay's to
    // tell.
    let outbox = store.outbox_stats(0).await.inspect_err(logged).ok();
    let inbox = store.inbox_stats().await.inspect_err(logged).ok();
    render(&Readings { meters, outbox: outbox.as_ref(), inbox: inbox.as_ref(), now })
}
