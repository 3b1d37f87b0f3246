//! What the suite needs to know about a store.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::message::JSON;
use twobox_core::ports::{
    Answer, DedupStore, Delivery, InboxStore, LaneLease, LaneStore, LogEntry, LogStore, OpsStore,
    OutboxStore, QueueStore, ReadLog, Settlement, SweepStore, TakeLanes, Treatment,
};
use twobox_core::{
    Clock, Consumer, Destination, Headers, Message, MessageType, OrderingKey, Payload, Random, Result, Source,
};

use crate::{ManualClock, SeededRandom};

/// What a handler under test does, through the transaction it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerScript {
    /// Writes the message's id into the effects table and answers with its payload.
    Effect,
    /// Writes the effect, then asks to be tried again.
    EffectThenRetry,
    /// Writes the effect, then asks to be tried again after this delay.
    EffectThenRetryAfter(Duration),
    /// Writes the effect, then rejects.
    EffectThenReject,
    /// Writes the effect, then panics.
    EffectThenPanic,
    /// Writes the effect, then runs a statement that fails, ignores the error and claims success.
    EffectThenSwallow,
    /// Writes the effect, then makes the whole transaction roll back, ignores it and claims success.
    EffectThenSpoil,
    /// Writes the effect and enqueues a follow-up to this destination in the same transaction.
    EffectAndFollowUp(Destination),
    /// Answers with this many bytes.
    Large(usize),
}

type Position<F> = <<F as StoreFixture>::Store as LaneStore>::Position;

/// A store under test: empty, migrated, with a table for the effects of handlers.
pub trait StoreFixture: Sized + Send + Sync {
    /// The store.
    type Store: OutboxStore + InboxStore + QueueStore + DedupStore + SweepStore + OpsStore;

    /// Opens a new, empty store that dates everything with this clock.
    fn start(clock: Arc<ManualClock>, random: Arc<dyn Random>) -> impl Future<Output = Self> + Send;

    /// Closes the store and opens it again, as after a restart.
    fn reopen(self) -> impl Future<Output = Self> + Send;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// The clock it was started with.
    fn clock(&self) -> &ManualClock;

    /// Appends messages in one transaction and commits it.
    fn append(&self, messages: Vec<Message>) -> impl Future<Output = Result<()>> + Send;

    /// Appends messages in one transaction and rolls it back.
    fn append_and_roll_back(&self, messages: Vec<Message>) -> impl Future<Output = ()> + Send;

    /// Writes a row into the log that cannot be decoded, for this source and destination.
    fn append_undecodable(
        &self,
        source: &Source,
        destination: &Destination,
    ) -> impl Future<Output = ()> + Send;

    /// Makes the row of a queued message one that cannot be decoded.
    fn spoil_work(&self, id: &str) -> impl Future<Output = ()> + Send;

    /// A handler that does what the script says.
    fn handler(&self, script: HandlerScript) -> <Self::Store as InboxStore>::Handler;

    /// The ids in the effects table, in the order in which they were written.
    fn effects(&self) -> impl Future<Output = Vec<String>> + Send;

    /// Status and retry count of a message, as plain SQL shows them (RF-02).
    fn status(&self, id: &str) -> impl Future<Output = Option<(String, u32)>> + Send;

    /// Number of rows in the log.
    fn log_rows(&self) -> impl Future<Output = u64> + Send;

    /// Opens a new store with a clock and chance of its own.
    fn fresh() -> impl Future<Output = Self> + Send {
        async { Self::start(Arc::new(ManualClock::default()), Arc::new(SeededRandom::new(7))).await }
    }
}

/// A message `id` from shop to `destination`, created now.
pub(super) fn message<F: StoreFixture>(fixture: &F, id: &str, destination: &str) -> Message {
    message_from(fixture, "shop", id, destination)
}

pub(super) fn message_from<F: StoreFixture>(
    fixture: &F,
    source: &str,
    id: &str,
    destination: &str,
) -> Message {
    let now = fixture.clock().now();
    Message {
        id: name(id),
        source: name(source),
        destination: name(destination),
        endpoint: name("Pay"),
        message_type: MessageType::Signal,
        payload: Payload::new(format!("\"{id}\"").into_bytes()),
        content_type: JSON.into(),
        correlation_id: None,
        ordering_key: None,
        headers: Headers::default(),
        created: now,
        available: now,
        expires: now.plus(Duration::from_secs(24 * 3600)),
        replay: 0,
    }
}

/// The same with an ordering key.
pub(super) fn keyed<F: StoreFixture>(fixture: &F, id: &str, key: &str) -> Message {
    let ordering_key = Some(OrderingKey::new(key).expect("legal"));
    Message { ordering_key, ..message(fixture, id, "billing") }
}

/// A name that is known to be legal.
pub(super) fn name<T: for<'a> TryFrom<&'a str, Error = twobox_core::Error>>(text: &str) -> T {
    T::try_from(text).expect("a legal name")
}

pub(super) fn take(owner: &str, source: &str, destinations: &[&str]) -> TakeLanes {
    TakeLanes {
        owner: owner.into(),
        source: name(source),
        destinations: destinations.iter().map(|text| name(text)).collect(),
        everywhere: false,
        lease: Duration::from_secs(10),
        retries_max: 5,
        route_grace: Duration::from_secs(600),
    }
}

/// Takes the lane from shop to billing.
pub(super) async fn lane<F: StoreFixture>(fixture: &F) -> LaneLease<Position<F>> {
    let leases = fixture.store().take_lanes(&take("relay", "shop", &["billing"])).await.expect("takes");
    leases.into_iter().find(|lease| lease.link.destination.as_str() == "billing").expect("holds the lane")
}

/// Everything of a lane behind its cursor.
pub(super) async fn unread<F: StoreFixture>(
    fixture: &F,
    lease: &LaneLease<Position<F>>,
) -> Vec<LogEntry<Position<F>>> {
    let read = ReadLog {
        after: lease.cursor.clone(),
        until: None,
        lanes: vec![lease.clone()],
        scan_max: 1_000,
        bytes_max: usize::MAX,
    };
    fixture.store().read_log(read).await.expect("reads").entries
}

/// A settlement in which every entry went well.
pub(super) fn all_sent<P: Clone>(entries: &[LogEntry<P>]) -> Settlement<P> {
    let (first, last) = (&entries[0].position, &entries[entries.len() - 1].position);
    let count = u64::try_from(entries.len()).expect("few");
    Settlement {
        upto: last.clone(),
        receipts: vec![(first.clone(), last.clone(), count)],
        waiting: Vec::new(),
        sending: None,
    }
}

/// Ids of entries that can be decoded.
pub(super) fn ids<P>(entries: &[LogEntry<P>]) -> Vec<String> {
    entries
        .iter()
        .filter_map(|entry| entry.message.as_ref().ok())
        .map(|message| message.id.to_string())
        .collect()
}

/// Delivers messages to handlers for the consumer `billing`.
pub(super) async fn deliver<F: StoreFixture>(
    fixture: &F,
    messages: &[Message],
    script: impl Fn(&Message) -> Option<HandlerScript>,
) -> Vec<Answer> {
    let deliveries = messages.iter().map(|message| delivery(fixture, message, script(message))).collect();
    fixture.store().process(deliveries, Duration::from_secs(5)).await.expect("processes")
}

pub(super) fn delivery<F: StoreFixture>(
    fixture: &F,
    message: &Message,
    script: Option<HandlerScript>,
) -> Delivery<<F::Store as InboxStore>::Handler> {
    Delivery {
        message: Arc::new(message.clone()),
        consumer: Consumer::new("billing").expect("legal"),
        body_hash: message.payload.sha256(),
        treatment: script.map_or(Treatment::Unknown, |script| Treatment::Handle(fixture.handler(script))),
    }
}
