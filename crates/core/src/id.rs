//! Minting of message ids.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Builder;

use crate::{Clock, MessageId, Random};

/// Mints UUIDv7 message ids from an injected clock and injected randomness.
///
/// Ids of one mint sort in the order they were minted, even within a millisecond and even when the clock
/// steps back: the outbox's index on ids then grows at its right edge only.
pub struct IdMint {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    last: Mutex<Last>,
}

#[derive(Clone, Copy, Default)]
struct Last {
    millis: u64,
    counter: u16,
}

/// `rand_a` of UUIDv7 has twelve bits; it serves as the counter within a millisecond.
const COUNTER_MAX: u16 = 0x0fff;

impl IdMint {
    /// Creates a mint.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { clock, random, last: Mutex::default() }
    }

    /// Mints the next id.
    #[must_use]
    pub fn mint(&self) -> MessageId {
        let Last { millis, counter } = self.advance();
        let mut random = [0_u8; 10];
        random[..2].copy_from_slice(&counter.to_be_bytes());
        random[2..].copy_from_slice(&self.random.next_u64().to_be_bytes());
        MessageId::from_uuid(Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    fn advance(&self) -> Last {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let millis = self.clock.now().as_millis();
        *last = if millis > last.millis {
            Last { millis, counter: 0 }
        } else if last.counter < COUNTER_MAX {
            Last { counter: last.counter + 1, ..*last }
        } else {
            Last { millis: last.millis + 1, counter: 0 }
        };
        *last
    }
}

impl fmt::Debug for IdMint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdMint").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::Timestamp;

    struct Steps(AtomicI64);
    impl Clock for Steps {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(self.0.fetch_sub(700, Ordering::Relaxed))
        }
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
    }
    struct Zero;
    impl Random for Zero {
        fn next_u64(&self) -> u64 {
            0
        }
    }

    #[test]
    fn ids_sort_in_minting_order_while_the_clock_runs_backwards() {
        let mint = IdMint::new(Arc::new(Steps(AtomicI64::new(1_700_000_000_000_000))), Arc::new(Zero));
        let ids: Vec<_> = (0..10_000).map(|_| mint.mint()).collect();
        assert!(ids.is_sorted_by(|a, b| a.as_str() < b.as_str()));
    }
}
