//! Messages that came in.

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
    InboxFailed, InboxFailedQuery, InboxFilter, InboxMessage, InboxMessageDetail, InboxMessages, InboxPurge,
    InboxQuery, InboxReplay,
};
use crate::exit::Exit;

/// Where the routes of this box begin.
const INBOX: &str = "/_rf/inbox";

/// What can be done with messages that came in.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists messages, newest first.
    List(List),
    /// Shows all there is to know about a message.
    Show(Show),
    /// Lists dead letters, oldest death first, and why they died.
    Dead(Dead<Filter>),
    /// Runs dead letters again: one, those that match, or all.
    Replay(Replay),
    /// Removes dead letters for good: one, those that match, or all.
    Purge(Purge<Filter>),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only Seen, Processing, Done, Dead or Expired.
    #[arg(long)]
    status: Option<String>,
    /// Only of this consumer.
    #[arg(long)]
    consumer: Option<String>,
    /// Only from this source.
    #[arg(long)]
    source: Option<String>,
    /// Only for this endpoint.
    #[arg(long)]
    endpoint: Option<String>,
    /// Only of this ordering key; it is known as long as a message is queued.
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Only with this id.
    #[arg(long)]
    id: Option<String>,
    /// Only what was received at this time or later: RFC 3339, or how long ago ("2 h").
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what was received before this time.
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
    /// Only from this source.
    #[arg(long)]
    source: Option<String>,
    /// Only for this endpoint.
    #[arg(long)]
    endpoint: Option<String>,
    /// Only what died for this reason, for instance attempts-exhausted.
    #[arg(long)]
    reason: Option<String>,
    /// Only what died before this time: RFC 3339, or how long ago ("2 h").
    #[arg(long, value_name = "TIME")]
    died_before: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The id of one message.
    #[arg(conflicts_with_all = ["source", "endpoint", "reason", "died_before", "all", "dry_run"])]
    id: Option<String>,
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
        Command::Purge(arguments) => arguments.run(INBOX, purge).await,
    }
}

impl List {
    async fn run(&self) -> Result<Exit> {
        let asked = InboxQuery {
            status: self.status.clone(),
            consumer: self.consumer.clone(),
            source: self.source.clone(),
            endpoint: self.endpoint.clone(),
            ordering_key: self.ordering_key.clone(),
            message_id: self.id.clone(),
            received_from: self.since.as_deref().map(moment).transpose()?,
            received_until: self.until.as_deref().map(moment).transpose()?,
            ..InboxQuery::default()
        };
        let ask = |limit, next| InboxQuery { limit, next, ..asked.clone() };
        let place = self.common.open().await?;
        list::run(&place, "/_rf/inbox/messages", &self.extent, self.common.json, ask, sheet).await
    }
}

fn sheet(messages: &[InboxMessage]) -> Sheet {
    let (mut sheet, now) =
        (Sheet::new(["id", "status", "from", "endpoint", "key", "tries", "received", "last error"]), now());
    for message in messages {
        let cells = [
            text(&message.message_id),
            sheet.status(&message.status),
            text(&message.source),
            text(&message.endpoint),
            maybe(message.ordering_key.as_deref()),
            number(message.attempts.into()),
            text(&from_now(&message.received, now)),
            maybe(message.last_error.as_deref()),
        ];
        sheet.row(cells);
    }
    sheet
}

impl Show {
    async fn run(&self) -> Result<Exit> {
        let place = self.common.open().await?;
        let found: InboxMessages = place.get(&path("/_rf/inbox/messages", &self.id, "")?, &json!({})).await?;
        if self.common.json {
            print_json(&found)?;
        } else {
            found.messages.iter().try_for_each(show)?;
        }
        Ok(Exit::Done)
    }
}

fn show(detail: &InboxMessageDetail) -> Result<()> {
    let (message, now) = (&detail.message, now());
    let time = |at: &Option<String>| at.as_deref().map(|at| format!("{at} ({})", from_now(at, now)));
    let mut sheet = Sheet::plain();
    sheet.fact("id", Some(&message.message_id));
    sheet.fact("status", Some(&message.status));
    sheet.fact("consumer", Some(&message.consumer));
    sheet.fact("from", Some(&message.source));
    sheet.fact("endpoint", Some(&message.endpoint));
    sheet.fact("type", Some(&message.message_type));
    sheet.fact("ordering key", message.ordering_key.as_ref());
    sheet.fact("received", time(&Some(message.received.clone())));
    sheet.fact("last seen", time(&Some(detail.last_seen.clone())));
    sheet.fact("processed", time(&message.processed));
    sheet.fact("content hash", detail.hash.as_ref());
    sheet.fact("response", detail.response_bytes.map(|bytes| format!("{bytes} bytes")));
    let claimed = detail.claimed.as_ref();
    sheet.fact(
        "claimed by",
        claimed.map(|claim| format!("{} {}", claim.handler, from_now(&claim.since, now))),
    );
    if let Some(queued) = &detail.queued {
        sheet.fact("payload", Some(format!("{} bytes, {}", queued.payload_bytes, queued.content_type)));
        sheet.fact("headers", (!queued.headers.is_empty()).then(|| queued.headers.join(", ")));
        sheet.fact("correlation id", queued.correlation_id.as_ref());
        let trace = queued.trace.as_ref();
        sheet.fact("trace", trace.map(|trace| format!("{} span {}", trace.trace_id, trace.span_id)));
        sheet.fact("due", time(&queued.due));
        sheet.fact("expires", time(&queued.expires));
        sheet.fact("can be claimed", time(&queued.ready));
        sheet.fact("leased until", time(&queued.leased_until));
        sheet.fact("last attempt", time(&queued.last_attempt));
        sheet.fact("reason", queued.reason.as_ref());
    }
    sheet.fact("last error", message.last_error.as_ref());
    sheet.fact("replays", (detail.replay > 0).then(|| detail.replay.to_string()));
    sheet.fact("failed attempts", (message.attempts > 0).then(|| message.attempts.to_string()));
    print(&sheet)
}

impl Which for Filter {
    type Filter = InboxFilter;

    fn read(&self, id: Option<&str>) -> Result<InboxFilter> {
        Ok(InboxFilter {
            source: self.source.clone(),
            endpoint: self.endpoint.clone(),
            message_id: id.map(Into::into),
            reason: self.reason.clone(),
            died_before: self.died_before.as_deref().map(moment).transpose()?,
        })
    }
}

impl Dead<Filter> {
    async fn run(&self) -> Result<Exit> {
        let InboxFilter { source, endpoint, message_id, reason, died_before } = self.which.read(None)?;
        let asked = InboxFailedQuery {
            source,
            endpoint,
            message_id,
            reason,
            died_before,
            ..InboxFailedQuery::default()
        };
        let ask = |limit, next| InboxFailedQuery { limit, next, ..asked.clone() };
        let place = self.common.open().await?;
        list::run(&place, "/_rf/inbox/failed", &self.extent, self.common.json, ask, dead_sheet).await
    }
}

fn dead_sheet(letters: &[InboxFailed]) -> Sheet {
    let (mut sheet, now) = (Sheet::new(["id", "from", "endpoint", "key", "tries", "died", "why"]), now());
    for letter in letters {
        let key = letters::key(letter.ordering_key.as_deref(), letter.blocks_key);
        let cells = [
            text(&letter.message_id),
            text(&letter.source),
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
        if let Some(id) = &self.id {
            return bulk::retry(&self.common, INBOX, id, &json!({})).await;
        }
        let request = |filter, Step { all, dry_run, limit, per_second, next }| InboxReplay {
            filter,
            all,
            dry_run,
            limit,
            per_second,
            next,
        };
        letters::replay(INBOX, &self.common, &self.filter, &self.terms, request).await
    }
}

fn purge(filter: InboxFilter, Step { all, dry_run, limit, per_second, next }: Step) -> InboxPurge {
    InboxPurge { filter, all, dry_run, limit, per_second, next }
}
