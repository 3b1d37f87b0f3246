//! From a message as its author wrote it to a message that can be kept: id, source, dates, limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::id::IdMint;
use crate::message::PAYLOAD_BYTES_MAX;
use crate::{Clock, Error, Message, NewMessage, Random, Result, Source};

/// Gives messages of one source their id and dates, and refuses those beyond the limits.
pub struct Stamp {
    source: Source,
    clock: Arc<dyn Clock>,
    mint: IdMint,
    ttl: Duration,
    payload_bytes_max: usize,
}

impl Stamp {
    /// A stamp for messages of `source`, with a time to live of 24 h and payloads up to 1 MiB.
    #[must_use]
    pub fn new(source: Source, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        let mint = IdMint::new(Arc::clone(&clock), random);
        let ttl = Duration::from_secs(24 * 3600);
        Self { source, clock, mint, ttl, payload_bytes_max: PAYLOAD_BYTES_MAX }
    }

    /// Sets the time to live of messages that do not say.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the largest payload.
    #[must_use]
    pub fn payload_bytes_max(mut self, bytes: usize) -> Self {
        self.payload_bytes_max = bytes;
        self
    }

    /// Whose messages these are.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Checks and dates a message.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the payload or content type exceeds its limit.
    pub fn message(&self, new: &NewMessage) -> Result<Message> {
        self.check(new)?;
        let created = self.clock.now();
        let available = new.due.map_or(created, |due| due.max(created));
        Ok(Message {
            id: new.id.clone().unwrap_or_else(|| self.mint.mint()),
            source: self.source.clone(),
            destination: new.destination.clone(),
            endpoint: new.endpoint.clone(),
            message_type: new.message_type,
            payload: new.payload.clone(),
            content_type: new.content_type.clone(),
            correlation_id: new.correlation_id.clone(),
            ordering_key: new.ordering_key.clone(),
            headers: new.headers.clone(),
            created,
            available,
            expires: available.plus(new.ttl.unwrap_or(self.ttl)),
            replay: 0,
        })
    }

    fn check(&self, new: &NewMessage) -> Result<()> {
        let (bytes, max) = (new.payload.len(), self.payload_bytes_max);
        if bytes > max {
            return Err(Error::invalid(format!(
                "payload of {bytes} bytes exceeds payload_bytes_max ({max}): keep large bodies elsewhere and send a \
                 reference, or raise the limit on both sides"
            )));
        }
        crate::wire::check_content_type(&new.content_type)
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stamp").field("source", &self.source).finish_non_exhaustive()
    }
}
