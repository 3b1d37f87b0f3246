//! The relay: reads the log, delivers, settles.
//!
//! One relay serves one source. It holds a fenced lease on each of its lanes, keeps a few requests in flight per
//! lane, and settles outcomes in log order. A destination that is down holds its own lane and nobody else's.

mod batch;
mod breaker;
mod event;
mod figures;
mod lane;
mod options;
mod pace;
mod prompt;
mod reader;
mod run;
mod settle;
mod showing;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use twobox_core::meters::Meters;
use twobox_core::ports::{OutboxStore, Transport};
use twobox_core::{Destination, Error, ErrorKind, Random, Result, Source};

use self::options::Callback;
pub use self::options::{DeadLetterCallback, RelayOptions};
use crate::sync::run_loop;
use crate::{Shutdown, Timer};

/// Delivers the messages of one source. See the [module](self).
#[must_use = "a relay does nothing until it is run"]
pub struct Relay<S: OutboxStore> {
    store: S,
    source: Source,
    transports: BTreeMap<Destination, Arc<dyn Transport>>,
    /// For destinations that have none of their own.
    fallback: Option<Arc<dyn Transport>>,
    options: RelayOptions,
    callback: Option<Callback<S::Position>>,
    timer: Arc<dyn Timer>,
    random: Arc<dyn Random>,
    meters: Arc<Meters>,
}

/// Builds a [`Relay`].
#[must_use = "a builder does nothing until it is built"]
pub struct RelayBuilder<S: OutboxStore>(Relay<S>);

impl<S: OutboxStore> Relay<S> {
    /// A relay for the messages of `source`.
    pub fn builder(
        store: S,
        source: Source,
        timer: Arc<dyn Timer>,
        random: Arc<dyn Random>,
    ) -> RelayBuilder<S> {
        RelayBuilder(Self {
            store,
            source,
            transports: BTreeMap::new(),
            fallback: None,
            options: RelayOptions::default(),
            callback: None,
            timer,
            random,
            meters: Arc::default(),
        })
    }

    fn transport(&self, destination: &Destination) -> Option<Arc<dyn Transport>> {
        self.transports.get(destination).or(self.fallback.as_ref()).cloned()
    }

    /// Delivers until asked to stop, then finishes or abandons what is in flight within the configured time
    /// and gives its lanes back (S20).
    pub async fn run(self, shutdown: Shutdown) {
        run_loop(run::Run::new(self).run(shutdown)).await;
    }
}

impl<S: OutboxStore> RelayBuilder<S> {
    /// Sends messages for `destination` through `transport`.
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured) if the destination has a transport already.
    pub fn destination(mut self, destination: Destination, transport: Arc<dyn Transport>) -> Result<Self> {
        if self.0.transports.contains_key(&destination) {
            return Err(Error::new(
                ErrorKind::Misconfigured,
                format!("destination {destination} has two transports: keep one"),
            ));
        }
        self.0.transports.insert(destination, transport);
        Ok(self)
    }

    /// Sends messages for destinations without a transport of their own through `transport`. Each of them still
    /// has its own lane: its own breaker, its own requests in flight (S15).
    pub fn default_transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.0.fallback = Some(transport);
        self
    }

    /// Limits and policies.
    pub fn options(mut self, options: RelayOptions) -> Self {
        self.0.options = options;
        self
    }

    /// Calls `callback` for every message that dies or expires. Default: nobody is called; dead letters are
    /// listed all the same. A call that takes longer than 30 s is ended where it waits, and repeated as one that has failed.
    pub fn on_dead_letter(mut self, callback: DeadLetterCallback<S::Position>) -> Self {
        self.0.callback = Some(Callback(callback));
        self
    }

    /// Where it counts. Default: figures of its own, which nobody sees.
    pub fn meters(mut self, meters: Arc<Meters>) -> Self {
        self.0.meters = meters;
        self
    }

    /// Checks the options against each other (S10).
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured), naming the settings and the remedy.
    pub fn build(self) -> Result<Relay<S>> {
        self.0.options.check()?;
        Ok(self.0)
    }
}

impl<S: OutboxStore> fmt::Debug for Relay<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("source", &self.source)
            .field("destinations", &self.transports.keys())
            .field("options", &self.options)
            .field("callback", &self.callback)
            .finish_non_exhaustive()
    }
}

impl<S: OutboxStore> fmt::Debug for RelayBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
