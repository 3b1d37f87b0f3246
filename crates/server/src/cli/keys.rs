//! Ordering keys whose dead head holds up what follows.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::Common;
use super::output::{Sheet, number, print, print_json, text};
use super::text::visible;
use crate::Result;
use crate::api::{
    BlockedInboxKey, BlockedOutboxKey, Items, LimitQuery, ReleaseAnswer, ReleaseInboxKey, ReleaseOutboxKey,
};
use crate::exit::Exit;

/// What can be done with ordering keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the keys whose dead head holds up what follows, of both boxes.
    Blocked(Blocked),
    /// Lets a key step over its dead messages; they stay dead letters.
    Release(Release),
}

#[derive(Debug, Args)]
pub(crate) struct Blocked {
    /// Most keys of each box.
    #[arg(long, value_name = "ROWS", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The ordering key.
    key: String,
    /// A key of the outbox: where its messages go.
    #[arg(long, value_name = "DESTINATION", required_unless_present = "from", conflicts_with = "from")]
    to: Option<String>,
    /// Whose messages of the outbox. Default: the node's own.
    #[arg(long, requires = "to")]
    source: Option<String>,
    /// A key of the inbox: where its messages come from.
    #[arg(long, value_name = "SOURCE")]
    from: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// The blocked keys of both boxes.
#[derive(Debug, Serialize)]
struct BlockedKeys {
    outbox: Items<BlockedOutboxKey>,
    inbox: Items<BlockedInboxKey>,
}

pub(super) async fn run(command: &Command) -> Result<Exit> {
    match command {
        Command::Blocked(arguments) => arguments.run().await,
        Command::Release(arguments) => arguments.run().await,
    }
}

impl Blocked {
    async fn run(&self) -> Result<Exit> {
        let place = self.common.open().await?;
        let asked = LimitQuery { limit: Some(self.limit.into()) };
        let outbox = place.get("/_rf/outbox/keys", &asked).await?;
        let keys = BlockedKeys { outbox, inbox: place.get("/_rf/inbox/keys", &asked).await? };
        let anything = !keys.outbox.items.is_empty() || !keys.inbox.items.is_empty();
        if self.common.json {
            print_json(&keys)?;
        } else if anything {
            print(&sheet(&keys))?;
        }
        Ok(super::found(anything))
    }
}

fn sheet(keys: &BlockedKeys) -> Sheet {
    let mut sheet = Sheet::new(["box", "key", "from", "to", "waiting"]);
    for key in &keys.outbox.items {
        sheet.row([
            text("outbox"),
            text(&key.ordering_key),
            text(&key.source),
            text(&key.destination),
            number(key.waiting),
        ]);
    }
    for key in &keys.inbox.items {
        sheet.row([
            text("inbox"),
            text(&key.ordering_key),
            text(&key.source),
            text(&key.consumer),
            number(key.waiting),
        ]);
    }
    sheet
}

impl Release {
    async fn run(&self) -> Result<Exit> {
        let place = self.common.open().await?;
        let ordering_key = self.key.clone();
        let answer: ReleaseAnswer = match (&self.to, &self.from) {
            (Some(destination), _) => {
                let (source, destination) = (self.source.clone(), destination.clone());
                let asked = ReleaseOutboxKey { source, destination, ordering_key };
                place.post("/_rf/outbox/keys/release", &asked).await?
            }
            (None, from) => {
                let source = from.clone().unwrap_or_default();
                place.post("/_rf/inbox/keys/release", &ReleaseInboxKey { source, ordering_key }).await?
            }
        };
        if self.common.json {
            print_json(&answer)?;
        } else {
            print(&format!("{} goes on", visible(&self.key)))?;
        }
        Ok(Exit::Done)
    }
}
