//! How a node is.

use serde::Serialize;
use serde_json::json;

use super::Common;
use super::lanes;
use super::output::{Sheet, number, print, print_json, text};
use super::place::Place;
use super::text::{roughly, visible};
use crate::Result;
use crate::api::{Health, HealthStatus, InboxStats, Items, Lane, OutboxStats};
use crate::exit::Exit;

/// All there is to know about a node at a glance.
#[derive(Debug, Serialize)]
struct Status {
    health: Health,
    outbox: OutboxStats,
    inbox: InboxStats,
    lanes: Vec<Lane>,
}

pub(super) async fn run(common: &Common) -> Result<Exit> {
    let status = Status::ask(&common.open().await?).await?;
    if common.json {
        print_json(&status)?;
    } else {
        status.show()?;
    }
    Ok(match status.health.status {
        HealthStatus::Healthy => Exit::Done,
        HealthStatus::Degraded => Exit::Unsound,
    })
}

impl Status {
    async fn ask(place: &Place) -> Result<Self> {
        let nothing = json!({});
        let lanes: Items<Lane> = place.get("/_rf/outbox/lanes", &nothing).await?;
        Ok(Self {
            health: place.get("/_rf/health", &nothing).await?,
            outbox: place.get("/_rf/outbox/stats", &nothing).await?,
            inbox: place.get("/_rf/inbox/stats", &nothing).await?,
            lanes: lanes.items,
        })
    }

    fn show(&self) -> Result<()> {
        let Self { health, outbox, inbox, lanes } = self;
        let mut sheet = Sheet::plain();
        let state = match health.status {
            HealthStatus::Healthy => sheet.good("healthy"),
            HealthStatus::Degraded => sheet.bad("needs somebody"),
        };
        sheet.row([text(&health.source), state]);
        print(&sheet)?;
        print(&"")?;
        print(&outbox_sheet(outbox))?;
        print(&"")?;
        print(&inbox_sheet(inbox))?;
        if !lanes.is_empty() {
            print(&"")?;
            print(&lanes::sheet(lanes))?;
        }
        if !health.problems.is_empty() {
            print(&"")?;
        }
        health.problems.iter().try_for_each(|problem| print(&format!("! {}", visible(&problem.message))))
    }
}

fn outbox_sheet(stats: &OutboxStats) -> Sheet {
    let mut sheet =
        Sheet::new(["outbox", "pending", "retrying", "scheduled", "behind key", "dead", "sent", "oldest"]);
    let oldest = stats.oldest_ms.map(|millis| roughly(std::time::Duration::from_millis(millis)));
    let counts = [stats.pending, stats.retrying, stats.scheduled, stats.held, stats.dead, stats.sent];
    let cells = [text("")].into_iter().chain(counts.map(number));
    let cells: Vec<_> = cells.chain([super::output::maybe(oldest.as_deref())]).collect();
    sheet.row(cells);
    sheet
}

fn inbox_sheet(stats: &InboxStats) -> Sheet {
    let mut sheet =
        Sheet::new(["inbox", "queued", "dead", "done", "duplicates", "conflicts", "too old", "kept"]);
    let total = &stats.total;
    let counts =
        [total.queued, total.dead, total.done, total.duplicates, total.conflicts, total.too_old, total.rows];
    let cells: Vec<_> = [text("")].into_iter().chain(counts.map(number)).collect();
    sheet.row(cells);
    sheet
}
