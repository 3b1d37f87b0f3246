//! Billing's queue: who works on it, and work that billing gives itself.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use twobox_core::message::{Headers, JSON};
use twobox_core::ports::{Queue, Work};
use twobox_core::retry::Policy;
use twobox_core::system::SystemRandom;
use twobox_core::{
    Consumer, Destination, Endpoint, Error, Message, MessageId, MessageType, OrderingKey, Payload, Source,
    Timestamp,
};
use twobox_engine::worker::{Handling, WorkerOptions};
use twobox_engine::{SystemTimer, Worker};
use twobox_sqlite::Sqlite;

use crate::billing;
use crate::clock::LATER;
use crate::orders::{CALL, QUEUE, QUEUE_MEND};
use crate::outside::Caller;

/// What a dead worker has in hand is missed for no longer.
pub(crate) const LEASE: Duration = Duration::from_millis(300);

/// Plans have numbers that no order has.
const PLANS: std::ops::Range<i64> = 1000..1003;

/// The queue of this consumer. Its messages survive more crashes than a test has.
pub(crate) fn queue(consumer: &str) -> Result<Queue, Error> {
    let retry = Policy::default()
        .attempts_max(NonZeroU32::MIN.saturating_add(49))
        .base(Duration::from_millis(2))
        .max(Duration::from_millis(20))
        .jitter(Duration::ZERO);
    Ok(Queue { retry, ..Queue::new(Consumer::new(consumer)?) })
}

pub(crate) fn worker(billing: &Sqlite) -> Result<Worker<Sqlite>, Error> {
    let options = WorkerOptions {
        lease: LEASE,
        batch: 3,
        in_hand_max: 6,
        poll_min: Duration::from_millis(5),
        poll_max: Duration::from_millis(20),
        reap_interval: Duration::from_millis(50),
        shutdown_timeout: Duration::from_secs(2),
        ..WorkerOptions::default()
    };
    let (handler, caller) = (billing::handler(billing), Arc::new(Caller::new(billing)));
    let external = Handling::External(Arc::new(move |context| {
        let caller = Arc::clone(&caller);
        Box::pin(async move { caller.call(&context.message).await })
    }));
    let timer = Arc::new(SystemTimer::default());
    Worker::builder(billing.clone(), queue("billing")?, timer, &SystemRandom::default())
        .topic(Endpoint::new(QUEUE)?, Handling::Transactional(handler.clone()))?
        .topic(Endpoint::new(QUEUE_MEND)?, Handling::Transactional(handler))?
        .topic(Endpoint::new(CALL)?, external)?
        .options(options)
        .build()
}

/// Plans what is missing, each together with its work, for later and in order.
pub(crate) async fn plan(billing: &Sqlite) -> Result<(), Error> {
    for plan in PLANS {
        let due = billing.clock().now().plus(LATER);
        let (db, queue) = (billing.clone(), queue("billing")?);
        let payload = format!("[{plan}, \"plan\"]");
        let mut work = work(QUEUE, ("billing", &format!("plan {plan}")), &payload, billing.clock().now())?;
        work.message.available = due;
        work.message.ordering_key = Some(OrderingKey::new("plans")?);
        billing
            .transaction::<_, Error, _>(move |tx| {
                if tx.execute("INSERT OR IGNORE INTO plans VALUES (?1)", [plan])? == 0 {
                    return Ok(());
                }
                db.enqueue_work_in(tx, &queue, &work).map(drop)
            })
            .await?;
    }
    Ok(())
}

/// Work that nobody has sent.
pub(crate) fn work(
    topic: &str,
    (source, id): (&str, &str),
    payload: &str,
    now: Timestamp,
) -> Result<Work, Error> {
    let message = Message {
        id: MessageId::new(id)?,
        source: Source::new(source)?,
        destination: Destination::new("billing")?,
        endpoint: Endpoint::new(topic)?,
        message_type: MessageType::Signal,
        payload: Payload::new(payload.as_bytes().to_vec()),
        content_type: JSON.into(),
        correlation_id: None,
        ordering_key: None,
        headers: Headers::default(),
        created: now,
        available: now,
        expires: Timestamp::MAX,
        replay: 0,
    };
    Ok(Work { message, hash: None })
}
