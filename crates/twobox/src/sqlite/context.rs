//! What a handler knows beside its message.

use crate::{Enqueue, Message, MessageId, NewMessage, Outbox, Result};

/// The message a handler was called for, and a way to send others in the same transaction.
#[derive(Clone, Debug)]
pub struct Context<'a> {
    message: &'a Message,
    outbox: &'a Outbox,
}

impl<'a> Context<'a> {
    pub(super) fn new(message: &'a Message, outbox: &'a Outbox) -> Self {
        Self { message, outbox }
    }

    /// The whole message.
    #[must_use]
    pub fn message(&self) -> &Message {
        self.message
    }

    /// Its id: the idempotency key for effects outside the database.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.message.id
    }

    /// Enqueues a follow-up in the handler's transaction: it exists exactly when the effect does.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`].
    pub fn enqueue(&self, tx: &mut impl Enqueue, message: &NewMessage) -> Result<MessageId> {
        self.outbox.enqueue(tx, message)
    }
}
