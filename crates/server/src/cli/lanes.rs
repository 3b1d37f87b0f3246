//! Where messages go, and whether anything keeps them from it.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use super::Common;
use super::output::{Sheet, maybe, number, print, print_json, right, text};
use super::place::path;
use super::text::{from_now, now, roughly, thousands, visible};
use crate::Result;
use crate::api::{Items, Lane, LimitQuery, PauseAnswer, PauseRequest};
use crate::exit::Exit;

/// The most lanes that are shown.
const LANES_MAX: usize = 1_000;

/// Options of `twobox lanes`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stops sending to a destination until it is resumed. Nothing is lost or charged meanwhile.
    Pause {
        /// The destination.
        destination: String,
        /// Why, for whoever finds it paused.
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        #[command(flatten)]
        common: Common,
    },
    /// Sends to a destination again.
    Resume {
        /// The destination.
        destination: String,
        #[command(flatten)]
        common: Common,
    },
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit> {
    match &arguments.command {
        None => list(&arguments.common).await,
        Some(Command::Pause { destination, reason, common }) => {
            steer(common, destination, "/pause", &PauseRequest { reason: reason.clone() }).await
        }
        Some(Command::Resume { destination, common }) => {
            steer(common, destination, "/resume", &json!({})).await
        }
    }
}

async fn list(common: &Common) -> Result<Exit> {
    let asked = LimitQuery { limit: Some(LANES_MAX) };
    let lanes: Items<Lane> = common.open().await?.get("/_rf/outbox/lanes", &asked).await?;
    if common.json {
        print_json(&lanes)?;
    } else if !lanes.items.is_empty() {
        print(&sheet(&lanes.items))?;
    }
    Ok(super::found(!lanes.items.is_empty()))
}

/// Lanes, one per row.
pub(super) fn sheet(lanes: &[Lane]) -> Sheet {
    let (mut sheet, now) = (
        Sheet::new(["from", "to", "state", "pending", "retrying", "behind key", "dead", "sent", "oldest"]),
        now(),
    );
    for lane in lanes {
        let state = match (&lane.paused_since, &lane.held_since) {
            (Some(since), _) => sheet.open(&format!("paused {}{}", from_now(since, now), by(lane))),
            (None, Some(since)) => {
                let error = lane.held_error.as_deref().unwrap_or("it does not answer");
                sheet.bad(&format!("unreachable since {}: {error}", from_now(since, now)))
            }
            (None, None) if lane.owner.is_some() => sheet.good("served"),
            (None, None) => sheet.open("not served"),
        };
        let pending = &lane.pending;
        let least = if pending.at_least { "≥ " } else { "" };
        let oldest = lane.oldest_ms.map(|millis| roughly(Duration::from_millis(millis)));
        let cells = [
            text(&lane.source),
            text(&lane.destination),
            state,
            right(format!("{least}{}", thousands(pending.value))),
            number(lane.retrying),
            number(lane.held),
            number(lane.dead),
            number(lane.sent),
            maybe(oldest.as_deref()),
        ];
        sheet.row(cells);
    }
    sheet
}

fn by(lane: &Lane) -> String {
    let who = lane.paused_by.as_deref().map(|who| format!(" by {who}"));
    let why = lane.pause_reason.as_deref().filter(|why| !why.is_empty()).map(|why| format!(": {why}"));
    format!("{}{}", who.unwrap_or_default(), why.unwrap_or_default())
}

async fn steer(
    common: &Common,
    destination: &str,
    action: &str,
    body: &impl serde::Serialize,
) -> Result<Exit> {
    let target = path("/_rf/outbox/lanes", destination, action)?;
    let answer: PauseAnswer = common.open().await?.post(&target, body).await?;
    if common.json {
        print_json(&answer)?;
    } else {
        let state = match (answer.paused, answer.changed) {
            (true, true) => "is paused",
            (true, false) => "was paused already",
            (false, true) => "is no longer paused",
            (false, false) => "was not paused",
        };
        print(&format!("{} {state}", visible(&answer.destination)))?;
    }
    Ok(Exit::Done)
}
