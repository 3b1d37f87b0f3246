//! Failures that became known when nobody was waiting for the answer any more.
//!
//! A sender that has given up does not know that its message has failed, and finds it being handled, or not handled, when
//! it comes again: it would never be charged, and the handler would run for as long as the message lives (S6). So the next
//! delivery is told, once, instead of running.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use twobox_core::ports::Answer;
use twobox_core::{Message, MessageId, Source, mutant};

use crate::sync::Mutex;

/// Failures that are remembered. What is forgotten for want of room costs its message no attempt.
const UNHEARD_MAX: usize = 256;

type Key = (Source, MessageId);

/// The failures nobody has heard of, oldest first.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    answers: Mutex<VecDeque<(Key, Answer)>>,
    /// Whether there are any, for those who look without the lock.
    any: AtomicBool,
}

impl Unheard {
    /// Keeps an answer for the next delivery, if it is a failure.
    pub(super) fn note(&self, message: &Message, answer: &Answer) {
        if !matches!(answer, Answer::Retry { .. }) || mutant!(FailureForgotten) {
            return;
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= UNHEARD_MAX {
            answers.pop_front();
        }
        answers.push_back((key(message), answer.clone()));
        self.any.store(true, Ordering::Release);
    }

    /// What the last delivery of this message would have been told.
    pub(super) fn take(&self, message: &Message) -> Option<Answer> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let key = key(message);
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let at = answers.iter().position(|(of, _)| *of == key)?;
        let taken = answers.remove(at);
        self.any.store(!answers.is_empty(), Ordering::Release);
        taken.map(|(_, answer)| answer)
    }
}

fn key(message: &Message) -> Key {
    (message.source.clone(), message.id.clone())
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;

    use twobox_core::system::{SystemClock, SystemRandom};
    use twobox_core::{NewMessage, Source, Stamp};

    use super::*;

    #[test]
    fn s6_a_failure_is_told_once_and_the_oldest_ones_make_room() {
        let source = Source::new("shop").unwrap();
        let stamp = Stamp::new(source, Arc::new(SystemClock::default()), Arc::new(SystemRandom::default()));
        let message = || stamp.message(&NewMessage::json("billing", "Pay", &1).unwrap()).unwrap();
        let failed = Answer::Retry { after: None, error: "no ink".into() };
        let (unheard, first, second) = (Unheard::default(), message(), message());
        unheard.note(&first, &Answer::Done(None));
        assert_eq!(unheard.take(&first), None, "what is done is in the inbox");
        unheard.note(&first, &failed);
        assert_eq!(unheard.take(&second), None);
        assert_eq!((unheard.take(&first), unheard.take(&first)), (Some(failed.clone()), None));
        unheard.note(&first, &failed);
        (0..UNHEARD_MAX).for_each(|_| unheard.note(&second, &failed));
        assert_eq!(unheard.take(&first), None, "forgotten");
        assert_eq!(unheard.take(&second), Some(failed));
    }
}
