//! A service and its running parts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use twobox_core::ports::Queue;
use twobox_engine::relay::{DeadLetterCallback, Relay};
use twobox_engine::worker::{Handling, Worker, WorkerOptions};
use twobox_engine::{InProcess, Receiver, Shutdown, ShutdownHandle, Sweeper, Timer};

use super::{Builder, Inbox, Outbox};
use crate::{
    Destination, Endpoint, Listen, RelayOptions, Result, Source, Sqlite, SqliteHandler, SweepPlan, Transport,
};

/// A service: its outbox, its inbox and how they are run.
pub struct Twobox {
    pub(super) db: Sqlite,
    pub(super) source: Source,
    pub(super) outbox: Outbox,
    pub(super) inbox: Inbox,
    pub(super) queue: Queue,
    pub(super) topics: Vec<(Endpoint, Handling<SqliteHandler>)>,
    pub(super) default_topic: Option<Handling<SqliteHandler>>,
    pub(super) worker: WorkerOptions,
    pub(super) receiver: Receiver<Sqlite>,
    pub(super) listeners: Vec<Arc<dyn Listen>>,
    pub(super) destinations: Vec<(Destination, Arc<dyn Transport>)>,
    pub(super) default_transport: Option<Arc<dyn Transport>>,
    pub(super) relay: RelayOptions,
    pub(super) sweep: SweepPlan,
    pub(super) sweep_interval: Duration,
    pub(super) callback: Option<DeadLetterCallback<i64>>,
    pub(super) timer: Arc<dyn Timer>,
}

impl Twobox {
    /// A service called `name` on this database.
    pub fn builder(name: &str, db: &Sqlite) -> Builder {
        Builder::new(name, db)
    }

    /// A handle to enqueue with.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        self.outbox.clone()
    }

    /// The inbox: its queue, its dead letters, and dedup by hand.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// What handles incoming messages, for transports.
    #[must_use]
    pub fn receiver(&self) -> Receiver<Sqlite> {
        self.receiver.clone()
    }

    /// A transport to this service for others in the same process.
    #[must_use]
    pub fn in_process(&self) -> InProcess {
        InProcess::to(self.receiver())
    }

    /// Starts the relay, the worker, the sweeper and what listens on the current runtime. They stop when the result is shut down or dropped.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    #[must_use = "dropping it stops the service"]
    pub fn start(&self) -> Running {
        let (handle, shutdown) = Shutdown::new();
        let relay = self.relay().expect("build() has checked the same options");
        let sweeper = Sweeper::new(self.db.clone(), Arc::clone(&self.timer))
            .plan(self.sweep.clone())
            .interval(self.sweep_interval)
            .meters(self.db.meters());
        let mut tasks =
            vec![tokio::spawn(relay.run(shutdown.clone())), tokio::spawn(sweeper.run(shutdown.clone()))];
        let worker = self.worker().expect("build() has checked the same options");
        tasks.extend(worker.map(|worker| tokio::spawn(worker.run(shutdown.clone()))));
        for listener in &self.listeners {
            let (name, receiver) = (Destination::from(&self.source), Arc::new(self.receiver()));
            let mut shutdown = shutdown.clone();
            let stopped = Box::pin(async move { shutdown.requested().await });
            tasks.push(tokio::spawn(listener.serve(name, receiver, stopped)));
        }
        Running { handle, tasks }
    }

    pub(super) fn relay(&self) -> Result<Relay<Sqlite>> {
        let mut relay =
            Relay::builder(self.db.clone(), self.source.clone(), Arc::clone(&self.timer), self.db.random())
                .meters(self.db.meters());
        for (destination, transport) in &self.destinations {
            relay = relay.destination(destination.clone(), Arc::clone(transport))?;
        }
        if let Some(transport) = &self.default_transport {
            relay = relay.default_transport(Arc::clone(transport));
        }
        if let Some(callback) = &self.callback {
            relay = relay.on_dead_letter(Arc::clone(callback));
        }
        relay.options(self.relay.clone()).build()
    }

    /// What handles queued messages, if any are.
    pub(super) fn worker(&self) -> Result<Option<Worker<Sqlite>>> {
        let mut worker =
            Worker::builder(self.db.clone(), self.queue.clone(), Arc::clone(&self.timer), &*self.db.random())
                .options(self.worker.clone())
                .meters(&self.db.meters());
        for (topic, handling) in &self.topics {
            worker = worker.topic(topic.clone(), handling.clone())?;
        }
        if let Some(handling) = &self.default_topic {
            worker = worker.default_topic(handling.clone());
        }
        let any = !self.topics.is_empty() || self.default_topic.is_some();
        let worker = worker.build()?;
        Ok(any.then_some(worker))
    }
}

impl fmt::Debug for Twobox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Twobox")
            .field("source", &self.source)
            .field("receiver", &self.receiver)
            .finish_non_exhaustive()
    }
}

/// A running service. Dropping it asks the parts to stop without waiting for them.
#[derive(Debug)]
pub struct Running {
    handle: ShutdownHandle,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// Stops: finishes or abandons what is in flight within the relay's `shutdown_timeout`, gives the lanes back
    /// and waits for all of it.
    pub async fn shutdown(self) {
        self.handle.request();
        for task in self.tasks {
            // What a panic says may quote a payload, so only that there was one is told (S17).
            if task.await.is_err() {
                tracing::error!("a part of the service panicked");
            }
        }
    }
}
