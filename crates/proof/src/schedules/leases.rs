//! Two relays and one lane: leases end, relays die, and every message is settled once.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shuttle::future::{JoinHandle, block_on, spawn};
use twobox_core::clock::BoxFuture;
use twobox_core::config::Timing;
use twobox_core::ports::{Answer, DeliveryError, LaneStatus, LaneStore as _, Link, Transport};
use twobox_core::retry::Policy;
use twobox_core::{Destination, Error, Message, Response, Source};
use twobox_engine::relay::RelayOptions;
use twobox_engine::{Relay, Shutdown, ShutdownHandle, Timer};
use twobox_sqlite::{Drive, Sqlite};

use super::explore::{ensure, violated};
use super::place::{Place, message};
use super::time::{Chance, Stalling, Time, below};

const MESSAGES: usize = 3;
const LEASE: Duration = Duration::from_secs(4);
/// Messages that the cursor has not passed, or that wait.
const UNSETTLED: &str = "
    SELECT (SELECT count(*) FROM outbox_log WHERE seq > (SELECT cursor FROM outbox_lanes))
        + (SELECT count(*) FROM outbox_waiting WHERE state <> 'Sent')";
/// Looks at the clock until a relay that is going to stall does it, and for how much longer than its lease it does.
const LOOKS_MAX: u32 = 60;
const STALL_MILLIS: u32 = 2000;

pub(super) fn scenario(place: &Place) {
    let (file, time) = (place.file(), Time::default());
    let stranger = file.stranger();
    let db = file.open(&time, |builder| builder.drive(Drive::Manual));
    let arrived = Arrived::default();
    block_on(work(&db, &time, &arrived)).unwrap_or_else(|error| violated(error.chain()));
    let forbidden = stranger.texts("SELECT what FROM forbidden");
    ensure(forbidden.is_empty(), || forbidden.join(", "));
    let unsettled = stranger.number(UNSETTLED);
    ensure(unsettled == 0, || format!("{unsettled} messages are not settled as sent"));
    let arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
    ensure(arrived.len() == MESSAGES, || format!("only {arrived:?} arrived"));
}

async fn work(db: &Sqlite, time: &Time, arrived: &Arrived) -> Result<(), Error> {
    let driver = spawn({
        let db = db.clone();
        async move { db.drive().await }
    });
    let (fate, stalled) = (below(3), LEASE + Duration::from_millis(below(STALL_MILLIS).into()));
    let stall = Stalling::new(time, (fate == 0).then(|| below(LOOKS_MAX)), stalled);
    let relays =
        [start(db, time, Arc::new(stall), arrived)?, start(db, time, Arc::new(time.clone()), arrived)?];
    for number in 0..MESSAGES {
        let (into, message) = (db.clone(), message(time, &format!("m{number}")));
        db.transaction::<_, Error, _>(move |tx| into.append(tx, &message)).await?;
    }
    if fate == 1 {
        // It dies without a word, whatever it was doing.
        time.sleep(Duration::from_millis(below(3000).into())).await;
        relays[0].task.abort();
    }
    let settled = settle(db, time).await?;
    ensure(settled.sent == MESSAGES as u64, || {
        format!("{MESSAGES} messages, {} settled as sent", settled.sent)
    });
    for relay in relays {
        relay.stop.request();
        // One that was killed is gone.
        let _: Result<(), _> = relay.task.await;
    }
    let after = status(db).await?;
    driver.abort();
    ensure(after.sent == settled.sent, || {
        format!("{} messages were settled again", after.sent - settled.sent)
    });
    Ok(())
}

/// Waits until nothing is left to send.
async fn settle(db: &Sqlite, time: &Time) -> Result<LaneStatus, Error> {
    loop {
        time.sleep(Duration::from_millis(200)).await;
        let status = status(db).await?;
        if status.sent + status.failed + status.expired >= MESSAGES as u64 {
            return Ok(status);
        }
    }
}

/// The lane, as soon as there is one.
async fn status(db: &Sqlite) -> Result<LaneStatus, Error> {
    let none = || LaneStatus::new(twobox_core::ports::LaneId(0), source(), billing());
    Ok(db.lanes().await?.pop().unwrap_or_else(none))
}

fn source() -> Source {
    Source::new("shop").expect("a legal name")
}

fn billing() -> Destination {
    Destination::new("billing").expect("a legal name")
}

struct Running {
    stop: ShutdownHandle,
    task: JoinHandle<()>,
}

fn start(db: &Sqlite, time: &Time, timer: Arc<dyn Timer>, arrived: &Arrived) -> Result<Running, Error> {
    let options = RelayOptions {
        timing: Timing {
            retry: Policy::default()
                .attempts_max(NonZeroU32::MIN.saturating_add(99))
                .base(Duration::from_millis(100))
                .max(Duration::from_millis(400)),
            request_timeout: Duration::from_secs(1),
            lease: LEASE,
            ..Timing::default()
        },
        batch_messages_max: 2,
        in_flight_max: 2,
        ..RelayOptions::default()
    };
    let transport = Arc::new(Road { arrived: Arc::clone(arrived), time: time.clone() });
    let relay = Relay::builder(db.clone(), source(), timer, Arc::new(Chance))
        .destination(billing(), transport)?
        .options(options)
        .build()?;
    let (stop, shutdown) = Shutdown::new();
    Ok(Running { stop, task: spawn(relay.run(shutdown)) })
}

/// Messages that have reached their destination.
type Arrived = Arc<Mutex<BTreeSet<String>>>;

/// Takes its time, and does not always bring the answer back.
struct Road {
    arrived: Arrived,
    time: Time,
}

impl Transport for Road {
    fn deliver(
        &self,
        _: &Arc<Link>,
        batch: Vec<Arc<Message>>,
        _: Duration,
    ) -> BoxFuture<'static, Result<Vec<Answer>, DeliveryError>> {
        let (arrived, time) = (Arc::clone(&self.arrived), self.time.clone());
        Box::pin(async move {
            time.sleep(Duration::from_millis(below(600).into())).await;
            if below(8) == 0 {
                return Err(DeliveryError::unreachable("closed"));
            }
            let answer = |message: &Arc<Message>| {
                if below(8) == 0 {
                    return Answer::Retry { after: None, error: "not now".into() };
                }
                arrived.lock().unwrap_or_else(PoisonError::into_inner).insert(message.id.to_string());
                Answer::Done(Some(Response::empty()))
            };
            let answers = batch.iter().map(answer).collect();
            time.sleep(Duration::from_millis(below(100).into())).await;
            if below(8) == 0 { Err(DeliveryError::ambiguous("cut")) } else { Ok(answers) }
        })
    }
}
