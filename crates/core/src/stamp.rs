//! From a message as its author wrote it to a message that can be kept: id, source, dates, limits.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::id::IdMint;
use crate::message::PAYLOAD_BYTES_MAX;
use crate::{Clock, Destination, Endpoint, Error, Message, NewMessage, Random, Result, Source};

/// Gives messages of one source their id and dates, and refuses those beyond the limits.
pub struct Stamp {
    source: Source,
    clock: Arc<dyn Clock>,
    mint: IdMint,
    ttl: Duration,
    payload_bytes_max: usize,
    last: Mutex<Option<(Destination, Endpoint)>>,
}

impl Stamp {
    /// A stamp for messages of `source`, with a time to live of 24 h and payloads up to 1 MiB.
    #[must_use]
    pub fn new(source: Source, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        let mint = IdMint::new(Arc::clone(&clock), random);
        let ttl = Duration::from_secs(24 * 3600);
        Self { source, clock, mint, ttl, payload_bytes_max: PAYLOAD_BYTES_MAX, last: Mutex::default() }
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
        let (destination, endpoint) = self.names(new);
        Ok(Message {
            id: new.id.clone().unwrap_or_else(|| self.mint.mint()),
            source: self.source.clone(),
            destination,
            endpoint,
            message_type: new.message_type,
            payload: new.payload.detached(),
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

    /// Where it goes, as the last message has it if it went there too: names that many messages share are in the
    /// processor's caches, and need not be freed with each of them.
    fn names(&self, new: &NewMessage) -> (Destination, Endpoint) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |(destination, endpoint): &&(Destination, Endpoint)| {
            *destination == new.destination && *endpoint == new.endpoint
        };
        if let Some(names) = last.as_ref().filter(is_it) {
            return names.clone();
        }
        last.insert((new.destination.clone(), new.endpoint.clone())).clone()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Payload, Timestamp};

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(1_700_000_000_000_000)
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
    }

    impl Random for Still {
        fn next_u64(&self) -> u64 {
            7
        }
    }

    #[test]
    fn messages_to_the_same_place_share_its_names_and_others_do_not() {
        let stamp = Stamp::new(Source::new("shop").unwrap(), Arc::new(Still), Arc::new(Still));
        let to = |destination, endpoint| {
            stamp.message(&NewMessage::json(destination, endpoint, &1).unwrap()).unwrap()
        };
        let (first, again) = (to("billing", "Pay"), to("billing", "Pay"));
        assert_eq!(first.destination.as_str().as_ptr(), again.destination.as_str().as_ptr());
        assert_eq!(first.endpoint.as_str().as_ptr(), again.endpoint.as_str().as_ptr());
        for (destination, endpoint) in [("billing", "Refund"), ("stock", "Refund"), ("billing", "Pay")] {
            let other = to(destination, endpoint);
            assert_eq!((other.destination.as_str(), other.endpoint.as_str()), (destination, endpoint));
        }
    }

    #[test]
    fn what_is_kept_has_the_payload_of_its_author() {
        let stamp = Stamp::new(Source::new("shop").unwrap(), Arc::new(Still), Arc::new(Still));
        for bytes in [0, 1, 1024, 1025, 9000] {
            let mut new = NewMessage::json("billing", "Pay", &1).unwrap();
            new.payload = Payload::new(vec![b'x'; bytes]);
            let kept = stamp.message(&new).unwrap().payload;
            assert_eq!((kept.as_bytes(), kept.sha256()), (new.payload.as_bytes(), new.payload.sha256()));
        }
    }
}
