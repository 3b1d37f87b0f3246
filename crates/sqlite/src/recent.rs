//! The end of the log in memory: what our own writer has just committed need not be read back.
//!
//! It is only ever a copy of consecutive rows of the log. Whoever asks for more than it holds, or for rows that
//! somebody else has written in between, is sent to the database. When somebody else has written behind it, whoever
//! notices forgets all of it before relays are told, so that they ask the database.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use twobox_core::Message;

use crate::sync::{Mutex, MutexGuard};

/// Messages that are kept: what a lane that keeps up has under way. More would be long out of the processor's caches when
/// they are dropped.
const MESSAGES_MAX: usize = 1024;
/// Payload bytes that are kept.
const BYTES_MAX: usize = 4 << 20;

/// A message that was appended to the log, with its place.
pub(crate) type Appended = (i64, Arc<Message>);

/// How often everything was forgotten.
pub(crate) type Generation = u64;

/// The last messages of one log.
#[derive(Debug, Default)]
pub(crate) struct Recent(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Consecutive places, in order.
    messages: VecDeque<Appended>,
    bytes: usize,
    generation: Generation,
}

impl Recent {
    /// To be asked while a message is appended.
    pub(crate) fn generation(&self) -> Generation {
        self.lock().generation
    }

    /// Takes a message that was appended in this generation and is committed, in the order of the log.
    ///
    /// If everything was forgotten since, somebody else may have written behind it before this was called, and nobody
    /// would be told again: then it is not taken.
    pub(crate) fn push(&self, generation: Generation, (place, message): Appended) {
        let mut kept = self.lock();
        if kept.generation != generation {
            return;
        }
        if kept.messages.back().is_some_and(|(last, _)| last + 1 != place) {
            kept.empty();
        }
        kept.bytes += message.payload.len();
        kept.messages.push_back((place, message));
    }

    /// Drops what is beyond the limits. Not done by [`push`](Self::push): whoever is to hear of a commit waits for that,
    /// and to drop a message that the processor has long forgotten takes longer than to push one.
    pub(crate) fn trim(&self) {
        let mut dropped = Vec::new();
        let mut kept = self.lock();
        while kept.messages.len() > MESSAGES_MAX || kept.bytes > BYTES_MAX {
            dropped.extend(kept.take_first());
        }
        // Relays need not wait for this either.
        drop(kept);
    }

    /// What comes after `after`, at most `max` messages, if all of it up to `end` is here.
    pub(crate) fn after(&self, after: i64, end: i64, max: usize) -> Option<Vec<Appended>> {
        let kept = self.lock();
        let (first, last) = (kept.messages.front()?.0, kept.messages.back()?.0);
        if after + 1 < first || last != end || after >= last {
            return None;
        }
        let skipped = usize::try_from(after + 1 - first).ok()?;
        Some(kept.messages.iter().skip(skipped).take(max).cloned().collect())
    }

    /// Forgets everything: after a reopening the database alone says what is there.
    pub(crate) fn clear(&self) {
        let mut kept = self.lock();
        kept.empty();
        kept.generation += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn empty(&mut self) {
        self.messages.clear();
        self.bytes = 0;
    }

    fn take_first(&mut self) -> Option<Appended> {
        self.messages.pop_front().inspect(|(_, message)| self.bytes -= message.payload.len())
    }
}

#[cfg(test)]
mod tests {
    use twobox_core::{Destination, Endpoint, Headers, MessageId, MessageType, Payload, Source, Timestamp};

    use super::*;

    fn appended(place: i64, bytes: usize) -> Appended {
        let message = Message {
            id: MessageId::new(format!("m{place}")).unwrap(),
            source: Source::new("shop").unwrap(),
            destination: Destination::new("billing").unwrap(),
            endpoint: Endpoint::new("pay").unwrap(),
            message_type: MessageType::Signal,
            payload: Payload::new(vec![0; bytes]),
            content_type: "text/plain".into(),
            correlation_id: None,
            ordering_key: None,
            headers: Headers::default(),
            created: Timestamp::from_micros(0),
            available: Timestamp::from_micros(0),
            expires: Timestamp::MAX,
            replay: 0,
        };
        (place, Arc::new(message))
    }

    fn places(found: Option<Vec<Appended>>) -> Option<Vec<i64>> {
        found.map(|messages| messages.iter().map(|(place, _)| *place).collect())
    }

    #[test]
    fn only_what_is_complete_is_given() {
        let recent = Recent::default();
        assert!(recent.after(0, 0, 9).is_none());
        let push = |place| recent.push(recent.generation(), appended(place, 1));
        (5..=8).for_each(push);
        assert_eq!(places(recent.after(4, 8, 9)), Some(vec![5, 6, 7, 8]));
        assert_eq!(places(recent.after(6, 8, 1)), Some(vec![7]));
        assert!(recent.after(3, 8, 9).is_none(), "4 is not here");
        assert!(recent.after(4, 9, 9).is_none(), "somebody else has written 9");
        assert!(recent.after(8, 8, 9).is_none(), "there is nothing");
        push(11);
        assert_eq!(places(recent.after(10, 11, 9)), Some(vec![11]));
        assert!(recent.after(7, 11, 9).is_none(), "9 and 10 are somebody else's");
        let before = recent.generation();
        recent.clear();
        assert!(recent.after(10, 11, 9).is_none());
        recent.push(before, appended(12, 1));
        assert!(recent.after(11, 12, 9).is_none(), "13 may have been written and told of already");
    }

    #[test]
    fn it_is_bounded_in_messages_and_bytes() {
        let recent = Recent::default();
        let push = |place, bytes| recent.push(recent.generation(), appended(place, bytes));
        (1..=5000).for_each(|place| push(place, 1));
        recent.trim();
        assert_eq!(recent.lock().messages.len(), MESSAGES_MAX);
        (5001..=5010).for_each(|place| push(place, 1 << 20));
        recent.trim();
        let kept = recent.lock();
        assert!(kept.bytes <= BYTES_MAX && kept.messages.len() == 4);
        assert_eq!(kept.bytes, kept.messages.iter().map(|(_, message)| message.payload.len()).sum::<usize>());
    }

    #[tokio::test]
    async fn the_writer_keeps_it_within_its_limits() {
        let folder = tempfile::tempdir().unwrap();
        let db = crate::Sqlite::open(folder.path().join("shop.db")).await.unwrap();
        db.migrate().await.unwrap();
        let of_tx = db.clone();
        db.transaction(move |tx| (1..=2_000).try_for_each(|place| of_tx.append(tx, &appended(place, 1).1)))
            .await
            .unwrap();
        // The writer has cleaned up behind the one before when it answers this one.
        db.transaction::<_, twobox_core::Error, _>(|_| Ok(())).await.unwrap();
        assert_eq!(db.state.recent.lock().messages.len(), MESSAGES_MAX);
        assert_eq!(places(db.state.recent.after(1_999, 2_000, 9)), Some(vec![2_000]));
    }
}
