//! Time and chance, injected: a run can be replayed from a seed only if nothing else supplies them.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::Timestamp;

/// A boxed future, for traits that are chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The only source of time.
pub trait Clock: Send + Sync + 'static {
    /// Wall-clock time. May jump in either direction: use it for dates, never for waiting.
    fn now(&self) -> Timestamp;

    /// Time since some fixed point; never goes backwards. For time-outs and back-off.
    fn monotonic(&self) -> Duration;
}

/// The only source of chance: jitter and ids.
pub trait Random: Send + Sync + 'static {
    /// Sixty-four uniformly distributed bits.
    fn next_u64(&self) -> u64;
}

const _: fn(&dyn Clock, &dyn Random) = |_, _| {}; // both are chosen at run time
