//! Threads and locks of the store.
//!
//! They are the standard library's. With the feature `shuttle` they belong to a scheduler that decides who runs next,
//! so that a test can try many schedules of the same code.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic, mpsc},
    thread, thread_local,
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{Mutex, MutexGuard, atomic, mpsc},
    thread, thread_local,
};

#[cfg(feature = "shuttle")]
pub(crate) use self::scheduled::Condvar;

#[cfg(feature = "shuttle")]
mod scheduled {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, LockResult, PoisonError};
    use std::time::Duration;

    use super::{MutexGuard, thread};

    /// Whoever waits this long must be woken: a schedule in which nobody does it is a dead end, and is found.
    const FOR_EVER: Duration = Duration::from_secs(60);

    /// A condition variable whose short waits may be over at any moment: a thread of its own ends them.
    #[derive(Default)]
    pub(crate) struct Condvar(Arc<shuttle::sync::Condvar>);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait_while<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<MutexGuard<'a, T>> {
            self.0.wait_while(guard, condition)
        }

        /// The flag says whether the time was up.
        pub(crate) fn wait_timeout_while<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            patience: Duration,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> LockResult<(MutexGuard<'a, T>, bool)> {
            let alarm = (patience < FOR_EVER).then(|| Alarm::set(Arc::clone(&self.0)));
            let rang = || alarm.as_ref().is_some_and(|alarm| alarm.rang.load(Ordering::Relaxed));
            let waited = self.0.wait_while(guard, |value| condition(value) && !rang());
            waited
                .map(|guard| (guard, rang()))
                .map_err(|error| PoisonError::new((error.into_inner(), rang())))
        }
    }

    /// Ends a wait whenever the scheduler gets to it, unless the wait is over.
    struct Alarm {
        rang: Arc<AtomicBool>,
        off: Arc<AtomicBool>,
    }

    impl Alarm {
        fn set(sleeper: Arc<shuttle::sync::Condvar>) -> Self {
            let alarm = Self { rang: Arc::default(), off: Arc::default() };
            let (rang, off) = (Arc::clone(&alarm.rang), Arc::clone(&alarm.off));
            drop(thread::spawn(move || {
                // Rings on: it has no part in the lock, so the sleeper may be about to lie down.
                while !off.load(Ordering::Relaxed) {
                    rang.store(true, Ordering::Relaxed);
                    sleeper.notify_all();
                    thread::yield_now();
                }
            }));
            alarm
        }
    }

    impl Drop for Alarm {
        fn drop(&mut self) {
            self.off.store(true, Ordering::Relaxed);
        }
    }
}
