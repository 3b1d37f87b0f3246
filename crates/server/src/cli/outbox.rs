//! Messages that go out.

use clap::{Args, Subcommand};
use serde_json::json;

use super::Common;
use super::bulk::{self, Step, Terms, why};
use super::letters::{self, Dead, Purge, Which};
use super::list::{self, Extent};
use super::output::{Sheet, maybe, number, print, print_json, text};
use super::place::path;
use super::text::{from_now, moment, now};
use crate::Result;
use crate::api::{
    Attempt, OutboxFailed, OutboxFailedQuery, OutboxFilter, OutboxMessage, OutboxMessageDetail,
    OutboxMessages, OutboxPurge, OutboxQuery, OutboxReplay, ReplayMode, RetryOne,
};
use crate::exit::Exit;

/// Where the routes of this box begin.
const OUTBOX: &str = "/_rf/outbox";

/// What can be done with messages that go out.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists messages, newest first.
    List(List),
    /// Shows a message's life, attempt by attempt.
    Show(Show),
    /// Lists dead letters, oldest death first, and why they died.
    Dead(Dead<Filter>),
    /// Sends dead letters again: one, those that match, or all.
    Replay(Replay),
    /// Removes dead letters for good: one, those that match, or all.
    Purge(Purge<Filter>),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only Pending, Sending, Sent, Failed or Expired.
    #[arg(long)]
    status: Option<String>,
    /// Only of this source.
    #[arg(long)]
    source: Option<String>,
    /// Only to this destination.
    #[arg(long)]
    destination: Option<String>,
    /// Only for this endpoint.
    #[arg(long)]
    endpoint: Option<String>,
    /// Only of this ordering key.
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Only with this id.
    #[arg(long)]
    id: Option<String>,
    /// Only what was created at this time or later: RFC 3339, or how long ago ("2 h").
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what was created before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    #[command(flatten)]
    extent: Extent,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The message's id.
    id: String,
    #[command(flatten)]
    common: Common,
}

/// Which dead letters.
#[derive(Clone, Debug, Args)]
pub(crate) struct Filter {
    /// Only of this source.
    #[arg(long)]
    source: Option<String>,
    /// Only to this destination.
    #[arg(long)]
    destination: Option<String>,
    /// Only for this endpoint.
    #[arg(long)]
    endpoint: Option<String>,
    /// Only what died for this reason, for instance rejected.
    #[arg(long)]
    reason: Option<String>,
    /// Only what died before this time: RFC 3339, or how long ago ("2 h").
    #[arg(long, value_name = "TIME")]
    died_before: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The id of one message.
    #[arg(conflicts_with_all = ["source", "destination", "endpoint", "reason", "died_before", "all", "dry_run"])]
    id: Option<String>,
    /// Sends it under a new id, for messages that the receiver calls too old. Under the old one a receiver that has
    /// handled it answers as to a duplicate.
    #[arg(long)]
    new_id: bool,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn run(command: &Command) -> Result<Exit> {
    match command {
        Command::List(arguments) => arguments.run().await,
        Command::Show(arguments) => arguments.run().await,
        Command::Dead(arguments) => arguments.run().await,
        Command::Replay(arguments) => arguments.run().await,
        Command::Purge(arguments) => arguments.run(OUTBOX, purge).await,
    }
}

impl List {
    async fn run(&self) -> Result<Exit> {
        let asked = OutboxQuery {
            status: self.status.clone(),
            source: self.source.clone(),
            destination: self.destination.clone(),
            endpoint: self.endpoint.clone(),
            ordering_key: self.ordering_key.clone(),
            message_id: self.id.clone(),
            created_from: self.since.as_deref().map(moment).transpose()?,
            created_until: self.until.as_deref().map(moment).transpose()?,
            ..OutboxQuery::default()
        };
        let ask = |limit, next| OutboxQuery { limit, next, ..asked.clone() };
        let place = self.common.open().await?;
        list::run(&place, "/_rf/outbox/messages", &self.extent, self.common.json, ask, sheet).await
    }
}

fn sheet(messages: &[OutboxMessage]) -> Sheet {
    let (mut sheet, now) =
        (Sheet::new(["id", "status", "to", "endpoint", "key", "tries", "created", "last error"]), now());
    for message in messages {
        let cells = [
            text(&message.message_id),
            sheet.status(&message.status),
            text(&message.destination),
            text(&message.endpoint),
            maybe(message.ordering_key.as_deref()),
            number(message.attempts.into()),
            text(&from_now(&message.created, now)),
            maybe(message.last_error.as_deref()),
        ];
        sheet.row(cells);
    }
    sheet
}

impl Show {
    async fn run(&self) -> Result<Exit> {
        let place = self.common.open().await?;
        let found: OutboxMessages =
            place.get(&path("/_rf/outbox/messages", &self.id, "")?, &json!({})).await?;
        if self.common.json {
            print_json(&found)?;
        } else {
            found.messages.iter().try_for_each(show)?;
        }
        Ok(Exit::Done)
    }
}

fn show(detail: &OutboxMessageDetail) -> Result<()> {
    let (message, now) = (&detail.message, now());
    let time = |at: &Option<String>| at.as_deref().map(|at| format!("{at} ({})", from_now(at, now)));
    let mut sheet = Sheet::plain();
    sheet.fact("id", Some(&message.message_id));
    sheet.fact("status", Some(&message.status));
    sheet.fact("from", Some(&message.source));
    sheet.fact("to", Some(&message.destination));
    sheet.fact("endpoint", Some(&message.endpoint));
    sheet.fact("type", Some(&message.message_type));
    sheet.fact("ordering key", message.ordering_key.as_ref());
    sheet.fact("key waits for it", detail.holds_key.then_some("yes"));
    sheet.fact("payload", Some(format!("{} bytes, {}", message.payload_bytes, message.content_type)));
    sheet.fact("payload SHA-256", Some(&detail.payload_sha256));
    sheet.fact("headers", (!detail.headers.is_empty()).then(|| detail.headers.join(", ")));
    sheet.fact("correlation id", detail.correlation_id.as_ref());
    sheet.fact(
        "trace",
        detail.trace.as_ref().map(|trace| format!("{} span {}", trace.trace_id, trace.span_id)),
    );
    sheet.fact("created", time(&Some(message.created.clone())));
    sheet.fact("due", time(&message.due));
    sheet.fact("expires", time(&detail.expires));
    sheet.fact("next attempt", time(&message.next_attempt));
    sheet.fact("finished", time(&detail.finished));
    sheet.fact("reason", detail.reason.as_ref());
    sheet.fact("last error", message.last_error.as_ref());
    sheet.fact("replays", (detail.replay > 0).then(|| detail.replay.to_string()));
    sheet.fact("replayed as", detail.replayed_as.as_ref());
    sheet.fact("failed attempts", (message.attempts > 0).then(|| message.attempts.to_string()));
    print(&sheet)?;
    if detail.history.is_empty() { Ok(()) } else { print(&history(&detail.history)) }
}

fn history(attempts: &[Attempt]) -> Sheet {
    let mut sheet = Sheet::new(["replay", "attempt", "at", "error"]);
    for attempt in attempts {
        let cells = [
            number(attempt.replay.into()),
            number(attempt.attempt.into()),
            text(&attempt.at),
            text(&attempt.error),
        ];
        sheet.row(cells);
    }
    sheet
}

impl Which for Filter {
    type Filter = OutboxFilter;

    fn read(&self, id: Option<&str>) -> Result<OutboxFilter> {
        Ok(OutboxFilter {
            source: self.source.clone(),
            destination: self.destination.clone(),
            endpoint: self.endpoint.clone(),
            message_id: id.map(Into::into),
            reason: self.reason.clone(),
            died_before: self.died_before.as_deref().map(moment).transpose()?,
        })
    }
}

impl Dead<Filter> {
    async fn run(&self) -> Result<Exit> {
        let OutboxFilter { source, destination, endpoint, message_id, reason, died_before } =
            self.which.read(None)?;
        let asked = OutboxFailedQuery {
            source,
            destination,
            endpoint,
            message_id,
            reason,
            died_before,
            ..OutboxFailedQuery::default()
        };
        let ask = |limit, next| OutboxFailedQuery { limit, next, ..asked.clone() };
        let place = self.common.open().await?;
        list::run(&place, "/_rf/outbox/failed", &self.extent, self.common.json, ask, dead_sheet).await
    }
}

fn dead_sheet(letters: &[OutboxFailed]) -> Sheet {
    let (mut sheet, now) = (Sheet::new(["id", "to", "endpoint", "key", "tries", "died", "why"]), now());
    for letter in letters {
        let key = letters::key(letter.ordering_key.as_deref(), letter.blocks_key);
        let cells = [
            text(&letter.message_id),
            text(&letter.destination),
            text(&letter.endpoint),
            maybe(key.as_deref()),
            number(letter.attempts.into()),
            text(&from_now(&letter.died, now)),
            sheet.bad(&why(&letter.reason, letter.error.as_deref())),
        ];
        sheet.row(cells);
    }
    sheet
}

impl Replay {
    async fn run(&self) -> Result<Exit> {
        let mode = if self.new_id { ReplayMode::NewId } else { ReplayMode::SameId };
        if let Some(id) = &self.id {
            return bulk::retry(&self.common, OUTBOX, id, &RetryOne { mode }).await;
        }
        let request = |filter, Step { all, dry_run, limit, per_second, next }| OutboxReplay {
            filter,
            all,
            dry_run,
            limit,
            per_second,
            next,
            mode,
        };
        letters::replay(OUTBOX, &self.common, &self.filter, &self.terms, request).await
    }
}

fn purge(filter: OutboxFilter, Step { all, dry_run, limit, per_second, next }: Step) -> OutboxPurge {
    OutboxPurge { filter, all, dry_run, limit, per_second, next }
}
