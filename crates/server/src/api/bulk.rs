//! Doing something to dead letters: to one, to those that match, to all.

use serde::{Deserialize, Serialize};
use twobox_core::ports::ops::Count;
use utoipa::ToSchema;

/// How a dead letter of the outbox is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ReplayMode {
    /// Under the same id: a receiver that has handled it answers as to a duplicate.
    #[default]
    SameId,
    /// Under a new id, at the end of the log: for messages that the receiver calls too old.
    NewId,
}

/// How one dead letter is sent again. The body may be left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RetryOne {
    /// Under which id.
    #[serde(default)]
    pub(crate) mode: ReplayMode,
}

/// What a retry did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetryAnswer {
    /// Messages that are tried again: more than one if several sources have used the same id.
    pub(crate) replayed: u64,
}

/// Which dead letters of the outbox are meant. All that is given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OutboxFilter {
    /// Only of this source.
    pub(crate) source: Option<String>,
    /// Only to this destination.
    pub(crate) destination: Option<String>,
    /// Only for this endpoint.
    pub(crate) endpoint: Option<String>,
    /// Only this message.
    pub(crate) message_id: Option<String>,
    /// Only what died for this reason, for instance `rejected`.
    pub(crate) reason: Option<String>,
    /// Only what died before this time (RFC 3339, UTC).
    #[schema(format = DateTime)]
    pub(crate) died_before: Option<String>,
}

/// Which dead letters of the inbox are meant. All that is given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct InboxFilter {
    /// Only from this source.
    pub(crate) source: Option<String>,
    /// Only for this endpoint.
    pub(crate) endpoint: Option<String>,
    /// Only this message.
    pub(crate) message_id: Option<String>,
    /// Only what died for this reason, for instance `attempts-exhausted`.
    pub(crate) reason: Option<String>,
    /// Only what died before this time (RFC 3339, UTC).
    #[schema(format = DateTime)]
    pub(crate) died_before: Option<String>,
}

macro_rules! bulk {
    ($($(#[$doc:meta])* $name:ident of $filter:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(crate) struct $name {
            /// Which dead letters.
            #[serde(default)]
            pub(crate) filter: $filter,
            /// Must be `true` if the filter is empty: nobody means all by accident.
            #[serde(default)]
            pub(crate) all: bool,
            /// Only counts them.
            #[serde(default)]
            pub(crate) dry_run: bool,
            /// Most dead letters of this call; they are one commit.
            #[schema(minimum = 1, maximum = 1000, default = 100)]
            pub(crate) limit: Option<u32>,
            /// Most dead letters per second, over all calls: the answer says how long to wait before the next.
            #[schema(minimum = 1, maximum = 10000, default = 100)]
            pub(crate) per_second: Option<u32>,
            /// `next` of the call before: goes on behind what that came to, and comes to nothing that has died since the
            /// first call.
            pub(crate) next: Option<String>,
            $($(#[$field_doc])* pub(crate) $field: $type,)*
        }
    )*};
}

bulk! {
    /// Sends dead letters of the outbox again.
    OutboxReplay of OutboxFilter {
        /// Under which id.
        #[serde(default)]
        mode: ReplayMode,
    }
    /// Removes dead letters of the outbox for good.
    OutboxPurge of OutboxFilter {}
    /// Runs dead letters of the inbox again.
    InboxReplay of InboxFilter {}
    /// Removes dead letters of the inbox for good.
    InboxPurge of InboxFilter {}
}

/// A number that may have been counted up to a bound only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Matched {
    /// The number, or how far was counted.
    pub(crate) value: u64,
    /// Whether there may be more than that.
    pub(crate) at_least: bool,
}

impl From<Count> for Matched {
    fn from(count: Count) -> Self {
        Self { value: count.value, at_least: count.at_least }
    }
}

/// What a call did, and how to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BulkAnswer {
    /// Whether nothing was done.
    pub(crate) dry_run: bool,
    /// How many match; only of a dry run.
    pub(crate) matched: Option<Matched>,
    /// Dead letters it was done to.
    pub(crate) done: u64,
    /// Give it as `next` to go on; `null` if none is left.
    pub(crate) next: Option<String>,
    /// How long to wait before the next call; whoever is earlier is refused with 429.
    pub(crate) wait_ms: u64,
}
