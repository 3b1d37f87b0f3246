//! Looking at one message.

use twobox_core::ports::OpsStore;
use twobox_core::ports::ops::AttemptRecord;
use twobox_core::{MessageId, Result};

use crate::Sqlite;

/// Where a message of the outbox stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageStatus {
    /// Its place in the log.
    pub position: i64,
    /// Pending, Sending, Sent, Failed or Expired.
    pub status: String,
    /// Attempts charged.
    pub attempts: u32,
    /// The last error.
    pub last_error: Option<String>,
    /// Failed attempts, oldest first, the last few of them (L9).
    pub history: Vec<AttemptRecord>,
}

impl Sqlite {
    /// Where the message with this id stands, found by index. `None` if it was never enqueued, is trimmed or
    /// was purged. [`outbox_message`](twobox_core::ports::OpsStore::outbox_message) tells everything that is known.
    ///
    /// # Errors
    /// The database's.
    pub async fn message_status(&self, id: &MessageId) -> Result<Option<MessageStatus>> {
        let details = self.outbox_message(id).await?;
        Ok(details.into_iter().next().map(|detail| MessageStatus {
            position: detail.summary.position,
            status: detail.summary.status.as_str().into(),
            attempts: detail.summary.attempts,
            last_error: detail.summary.last_error,
            history: detail.history,
        }))
    }
}
