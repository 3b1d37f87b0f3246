//! Dead letters: who dies and who must not, who is told, and how the dead are sent again.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::AbortHandle;
use twobox_core::ports::{
    Answer, DeadLetter, DeadLetterFilter, DeadLetterStore, DeliveryError, InboxRecord, InboxStatus,
    InboxStore, Replay, Replayed, Transport,
};
use twobox_core::{BoxError, Clock, Consumer, Endpoint, NewMessage, Refusal, Response, Source};
use twobox_engine::receiver::Route;
use twobox_engine::relay::{DeadLetterCallback, RelayOptions};
use twobox_engine::{InProcess, Receiver, Timer};
use twobox_sqlite::SqliteHandler;
use twobox_testkit::{ScriptedTransport, eventually};

use crate::world::{EVER, Running, World};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Long enough for a mistake to show.
const A_WHILE: Duration = Duration::from_secs(600);

/// A row that nobody can decode, not even its ordering key.
const ILLEGIBLE: &str = "
    INSERT INTO outbox_log (source, destination, endpoint, payload, ordering_key)
    VALUES ('shop', 'billing', 'Pay', '1', CAST(x'ff' AS TEXT)) RETURNING seq";

fn ok() -> Answer {
    Answer::Done(Some(Response::empty()))
}

fn rejecting() -> ScriptedTransport {
    ScriptedTransport::each(|_| Answer::Rejected { error: "never".into() })
}

/// Whom a callback was told about.
type Heard = Arc<Mutex<Vec<DeadLetter<i64>>>>;

/// A callback that remembers what it is told, then does as `answer` says.
fn callback(
    answer: impl Fn(&DeadLetter<i64>) -> Result<(), BoxError> + Send + Sync + 'static,
) -> (DeadLetterCallback<i64>, Heard) {
    let heard = Heard::default();
    let (list, answer) = (Arc::clone(&heard), Arc::new(answer));
    let callback: DeadLetterCallback<i64> = Arc::new(move |letter| {
        let (list, answer) = (Arc::clone(&list), Arc::clone(&answer));
        Box::pin(async move {
            list.lock().unwrap().push(letter.clone());
            answer(&letter)
        })
    });
    (callback, heard)
}

fn ids(heard: &Heard) -> Vec<String> {
    heard.lock().unwrap().iter().map(|letter| letter.message_id.clone()).collect()
}

fn times(heard: &Heard, id: &str) -> usize {
    ids(heard).iter().filter(|heard| *heard == id).count()
}

fn announcing(world: &World, transport: &ScriptedTransport, callback: &DeadLetterCallback<i64>) -> Running {
    let transports: [(&str, Arc<dyn Transport>); 1] = [("billing", Arc::new(transport.clone()))];
    world.relay_with(&transports, RelayOptions::default(), Some(Arc::clone(callback)))
}

fn to_billing(world: &World, transport: &ScriptedTransport, options: RelayOptions) -> Running {
    world.relay(&[("billing", Arc::new(transport.clone()))], options)
}

async fn replay(world: &World, how: Replay) -> Replayed {
    world.db.replay(&DeadLetterFilter::default(), how, DAY, 100).await.unwrap()
}

async fn letters(world: &World) -> Vec<DeadLetter<i64>> {
    world.db.dead_letters(&DeadLetterFilter::default(), None, 100).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn l10_every_death_is_announced_once() {
    let world = World::new().await;
    let all = world.enqueue_many("m", 250).await; // more than are announced in one go
    let (callback, heard) = callback(|_| Ok(()));
    let relay = announcing(&world, &rejecting(), &callback);
    eventually("all deaths are announced", EVER, async || (ids(&heard).len() >= 250).then_some(())).await;
    world.pass(A_WHILE).await;
    relay.stop().await;
    let relay = announcing(&world, &rejecting(), &callback);
    world.pass(A_WHILE).await;
    assert_eq!(ids(&heard), all, "once each, also after a restart");
    let first = heard.lock().unwrap()[0].clone();
    assert_eq!((first.reason.as_str(), first.error.as_deref()), ("rejected", Some("never")));
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l10_a_death_is_announced_again_after_a_crash_before_its_confirmation() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let victim: Arc<Mutex<Option<AbortHandle>>> = Arc::default();
    let killer = Arc::clone(&victim);
    // The process dies when its callback is through, before that can be written down.
    let (callback, heard) = callback(move |_| {
        killer.lock().unwrap().take().iter().for_each(AbortHandle::abort);
        Ok(())
    });
    let relay = announcing(&world, &rejecting(), &callback);
    *victim.lock().unwrap() = Some(relay.task.abort_handle());
    assert!(relay.task.await.unwrap_err().is_cancelled());
    assert_eq!(ids(&heard), ["m0"]);
    let relay = announcing(&world, &rejecting(), &callback);
    eventually("it is announced again", EVER, async || (ids(&heard).len() == 2).then_some(())).await;
    world.pass(A_WHILE).await;
    assert_eq!(ids(&heard), ["m0", "m0"], "and then no more");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l10_callbacks_that_fail_or_panic_are_called_again_and_starve_nobody() {
    let world = World::new().await;
    let all = world.enqueue_many("m", 101).await; // those that fail fill a page
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let (callback, heard) = callback(move |letter| match letter.message_id.as_str() {
        "m100" => Ok(()),
        _ if is_mended.load(Ordering::SeqCst) => Ok(()),
        "m7" => panic!("the callback's own mistake"),
        _ => Err("cannot tell anyone".into()),
    });
    let relay = announcing(&world, &rejecting(), &callback);
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(times(&heard, "m100"), 1, "it has its turn although all before it fail");
    let often = times(&heard, "m7");
    assert!((2..60).contains(&often), "called again, but not all the time: {often}");
    mended.store(true, Ordering::SeqCst);
    world.pass(Duration::from_secs(60)).await;
    let before = ids(&heard).len();
    assert!(all.iter().all(|id| id == "m100" || times(&heard, id) >= 2));
    world.pass(A_WHILE).await;
    assert_eq!(ids(&heard).len(), before, "whoever was told is not told again");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l10_a_callback_that_hangs_is_ended_and_called_again_and_starves_nobody() {
    let world = World::new().await;
    world.enqueue_many("m", 2).await;
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let list = Arc::clone(&heard);
    let hanging: DeadLetterCallback<i64> = Arc::new(move |letter| {
        list.lock().unwrap().push(letter.message_id.clone());
        Box::pin(async move { if letter.message_id == "m0" { std::future::pending().await } else { Ok(()) } })
    });
    let relay = announcing(&world, &rejecting(), &hanging);
    world.pass(Duration::from_secs(200)).await;
    let times = |id: &str| heard.lock().unwrap().iter().filter(|heard| *heard == id).count();
    assert_eq!(times("m1"), 1);
    assert!((2..10).contains(&times("m0")), "{}", times("m0"));
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l10_a_death_during_the_callback_of_another_is_announced_right_after_it() {
    let world = World::new().await;
    world.enqueue_many("first", 1).await;
    let heard: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (list, clock) = (Arc::clone(&heard), Arc::clone(&world.clock));
    let slow: DeadLetterCallback<i64> = Arc::new(move |_| {
        list.lock().unwrap().push(clock.monotonic());
        let pause = Timer::sleep(&*clock, Duration::from_secs(1));
        Box::pin(async move {
            pause.await;
            Ok(())
        })
    });
    let relay = announcing(&world, &rejecting(), &slow);
    let calls = || heard.lock().unwrap().len();
    eventually("the first is announced", EVER, async || (calls() == 1).then_some(())).await;
    world.enqueue_many("second", 1).await;
    eventually("the second is announced", EVER, async || (calls() == 2).then_some(())).await;
    let times = heard.lock().unwrap().clone();
    let gap = times[1] - times[0];
    assert!(gap < Duration::from_millis(1_500), "it waited for {gap:?}");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l10_a_message_that_dies_again_is_announced_again() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let (callback, heard) = callback(|_| Ok(()));
    let relay = announcing(&world, &rejecting(), &callback);
    for death in 1..=3 {
        eventually("it is announced", EVER, async || (ids(&heard).len() >= death).then_some(())).await;
        world.pass(A_WHILE).await;
        assert_eq!(ids(&heard).len(), death);
        assert_eq!(replay(&world, Replay::SameId).await, Replayed { replayed: 1, more: false });
    }
    let died: Vec<_> = heard.lock().unwrap().iter().map(|letter| letter.died).collect();
    assert!(died.is_sorted() && died[0] < died[1], "{died:?}");
    relay.stop().await;
}

/// A receiver on the same file that accepts what was replayed.
fn billing(world: &World) -> Arc<InProcess> {
    let handler = SqliteHandler::new(|_, message| match message.replay {
        0 => Err(Refusal::reject("no such account")),
        replay => Ok(Response::json(&replay)?),
    });
    let consumer = Consumer::new("billing").unwrap();
    let receiver = Receiver::builder(world.db.clone(), consumer, Arc::clone(&world.clock) as _);
    let receiver = receiver.route(Endpoint::new("Pay").unwrap(), Route::Handler(handler)).unwrap().build();
    Arc::new(InProcess::to(receiver))
}

async fn record(world: &World, id: &str) -> InboxRecord {
    let (consumer, source) = (Consumer::new("billing").unwrap(), Source::new("shop").unwrap());
    world.db.inbox_record(&consumer, &source, &id.parse().unwrap()).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn l10_a_rejected_message_replayed_under_its_id_is_handled() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let relay = world.relay(&[("billing", billing(&world))], RelayOptions::default());
    world.until("m0", "Failed").await;
    let rejected = record(&world, "m0").await;
    assert_eq!((rejected.status, rejected.replay), (InboxStatus::Dead, 0));
    assert_eq!(letters(&world).await[0].error.as_deref(), Some("no such account"));
    assert_eq!(replay(&world, Replay::SameId).await.replayed, 1);
    world.until("m0", "Sent").await;
    let done = record(&world, "m0").await;
    assert_eq!((done.status, done.replay), (InboxStatus::Done, 1));
    assert_eq!(done.response, Some(Response::json(&1).unwrap()));
    assert_eq!(replay(&world, Replay::SameId).await.replayed, 0, "it is no dead letter any more");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l10_replay_under_a_new_id_sends_a_copy_and_keeps_the_dead_letter() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let transport =
        ScriptedTransport::each(|message| if message.id.as_str() == "m0" { Answer::TooOld } else { ok() });
    let relay = to_billing(&world, &transport, RelayOptions::default());
    world.until("m0", "Failed").await;
    assert_eq!(replay(&world, Replay::NewId).await.replayed, 1);
    world.until_sent(1).await;
    let sent = transport.sent();
    assert_eq!((sent.len(), sent[0].as_str()), (2, "m0"));
    assert_ne!(sent[1], "m0", "a copy with an id of its own");
    assert!(world.is("m0", "Failed").await);
    let marked = world.query("SELECT replayed_as FROM outbox_waiting", |row| row.get::<String>(0)).await;
    assert_eq!(marked, [sent[1].clone()]);
    assert_eq!(replay(&world, Replay::NewId).await.replayed, 0, "and not twice");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s19_a_dead_letter_whose_key_is_not_text_keeps_nobody_from_being_replayed() {
    for how in [Replay::SameId, Replay::NewId] {
        let world = World::new().await;
        world.query(ILLEGIBLE, |_| Ok(())).await;
        world.enqueue_many("m", 1).await;
        let relay = to_billing(&world, &rejecting(), RelayOptions::default());
        world.until("m0", "Failed").await;
        relay.stop().await;
        assert_eq!(replay(&world, how).await, Replayed { replayed: 2, more: false }, "{how:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn s8_s9_conflict_and_too_old_die_at_once_with_their_reason() {
    let world = World::new().await;
    let names = ["conflict", "too-old", "rejected", "fine"];
    world.enqueue(names.map(|id| world.message(id, "billing")).into()).await;
    let transport = ScriptedTransport::each(|message| match message.id.as_str() {
        "conflict" => Answer::Conflict,
        "too-old" => Answer::TooOld,
        "rejected" => Answer::Rejected { error: "never".into() },
        _ => ok(),
    });
    let relay = to_billing(&world, &transport, RelayOptions::default());
    world.until("rejected", "Failed").await;
    world.pass(A_WHILE).await;
    assert_eq!(transport.sent(), names, "there is no second attempt");
    let letters = letters(&world).await;
    let reasons: Vec<_> =
        letters.iter().map(|letter| (&*letter.message_id, letter.reason.as_str())).collect();
    assert_eq!(reasons, [("conflict", "conflict"), ("too-old", "too-old"), ("rejected", "rejected")]);
    assert!(letters[1].error.as_deref().unwrap().contains("new id"), "it says what to do");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l3_who_was_merely_beside_the_killer_is_not_charged() {
    let world = World::new().await;
    world.enqueue_many("m", 2).await;
    let (clock, count) = (Arc::clone(&world.clock), AtomicUsize::new(0));
    let transport = ScriptedTransport::with_futures(move |_, batch| {
        let (clock, answers) = (Arc::clone(&clock), vec![ok(); batch.len()]);
        let nth = if batch.is_empty() { usize::MAX } else { count.fetch_add(1, Ordering::SeqCst) };
        Box::pin(async move {
            if nth < 2 {
                return Err(DeliveryError::unreachable("refused")); // a deploy
            }
            Timer::sleep(&*clock, Duration::from_millis(5)).await;
            // Both are on their way right after the probe; one of them breaks the receiver.
            if nth < 4 { Err(DeliveryError::ambiguous("cut")) } else { Ok(answers) }
        })
    });
    let options = RelayOptions { batch_messages_max: 1, in_flight_max: 2, ..RelayOptions::default() };
    let relay = to_billing(&world, &transport, options);
    world.until_sent(2).await;
    assert_eq!(world.status("m0").await, Some(("Sent".into(), 0)));
    assert_eq!(world.status("m1").await, Some(("Sent".into(), 0)));
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l3_requests_lost_in_a_dead_connection_charge_nobody() {
    let world = World::new().await;
    let transport = ScriptedTransport::with_futures(|n, batch| {
        let answers = vec![ok(); batch.len()];
        let lost = n < 2 && !batch.is_empty();
        Box::pin(async move { if lost { std::future::pending().await } else { Ok(answers) } })
    });
    let relay = to_billing(&world, &transport, RelayOptions::default());
    world.enqueue_many("a", 1).await;
    world.pass(Duration::from_millis(500)).await;
    world.enqueue_many("b", 1).await; // its time-out comes after the probe that follows the first one
    world.until_sent(2).await;
    assert_eq!(world.status("a0").await, Some(("Sent".into(), 0)));
    assert_eq!(world.status("b0").await, Some(("Sent".into(), 0)));
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l6_a_suspect_that_expires_holds_nobody_up() {
    let world = World::new().await;
    let short = world.message("m1", "billing").ttl(Duration::from_secs(20));
    world.enqueue(vec![world.message("m0", "billing"), short, world.message("m2", "billing")]).await;
    let (clock, up) = (Arc::clone(&world.clock), world.clock.monotonic() + Duration::from_secs(40));
    let transport = ScriptedTransport::new(move |_, batch| {
        if clock.monotonic() >= up {
            return Ok(vec![ok(); batch.len()]);
        }
        let suspect = batch.iter().any(|message| message.id.as_str() == "m1");
        Err(if suspect { DeliveryError::ambiguous("cut") } else { DeliveryError::unreachable("refused") })
    });
    let options = RelayOptions { batch_messages_max: 1, in_flight_max: 2, ..RelayOptions::default() };
    let relay = to_billing(&world, &transport, options);
    world.until_sent(2).await;
    assert!(world.clock.monotonic() < up + Duration::from_secs(15), "right after the outage");
    assert!(world.is("m1", "Expired").await);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l6_a_retry_expires_while_the_lane_is_held() {
    let world = World::new().await;
    let short = world.message("short", "billing").ttl(Duration::from_secs(60));
    world.enqueue(vec![world.message("long", "billing"), short]).await;
    let transport = ScriptedTransport::new(|n, batch| match n {
        0 => Ok(vec![Answer::Retry { after: None, error: "not now".into() }; batch.len()]),
        _ => Err(DeliveryError::unreachable("refused")),
    });
    let relay = to_billing(&world, &transport, RelayOptions::default());
    world.until("short", "Expired").await;
    let took = world.clock.monotonic();
    assert!((Duration::from_secs(60)..Duration::from_secs(65)).contains(&took), "{took:?}");
    assert!(world.is("long", "Pending").await);
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l6_a_retry_that_was_not_reached_hides_nothing_that_expires() {
    let world = World::new().await;
    let short = world.message("short", "billing").ttl(Duration::from_secs(60));
    world.enqueue(vec![world.message("long", "billing"), short]).await;
    let transport = ScriptedTransport::new(|n, batch| match n {
        0 => {
            let after = Duration::from_secs(30);
            Ok(vec![Answer::Retry { after: None, error: "not now".into() }, Answer::InProgress { after }])
        }
        1 => Ok(vec![Answer::NotReached; batch.len()]), // the retry of the long one
        _ => Err(DeliveryError::unreachable("refused")),
    });
    let relay = to_billing(&world, &transport, RelayOptions::default());
    world.pass(Duration::from_secs(65)).await;
    assert!(world.is("short", "Expired").await);
    assert_eq!(world.status("long").await, Some(("Pending".into(), 1)));
    assert!(world.lane("billing").await.held_since.is_some());
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l1_what_an_outage_left_behind_is_sent_after_a_restart() {
    let world = World::new().await;
    // The lane that keeps up is far ahead in the log when the relay starts again.
    let to = |down: &ScriptedTransport, up: &ScriptedTransport| {
        let transports: [(&str, Arc<dyn Transport>); 2] =
            [("down", Arc::new(down.clone())), ("up", Arc::new(up.clone()))];
        world.relay(&transports, RelayOptions::default())
    };
    let (refusing, sink) = (
        ScriptedTransport::new(|_, _| Err(DeliveryError::unreachable("refused"))),
        ScriptedTransport::sink(),
    );
    let first = world.relay(&[("down", Arc::new(refusing.clone()))], RelayOptions::default());
    world.pass(Duration::from_secs(1)).await; // so that its lane comes first
    first.stop().await;
    world.enqueue(vec![world.message("waits", "down"), world.message("goes", "up")]).await;
    let relay = to(&refusing, &sink);
    world.until("goes", "Sent").await;
    world.pass(Duration::from_secs(3)).await;
    assert!(world.lane("down").await.held_since.is_some());
    relay.stop().await;
    let mended = ScriptedTransport::sink();
    let relay = to(&mended, &sink);
    world.until("waits", "Sent").await;
    world.pass(Duration::from_secs(60)).await;
    assert_eq!((mended.sent(), sink.sent()), (vec!["waits".into()], vec!["goes".into()]));
    assert_eq!(world.lane("down").await.held_since, None, "and the lane is not shown as held any more");
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn s6_a_transport_that_panics_before_its_future_loses_nothing() {
    let world = World::new().await;
    world.enqueue_many("m", 1).await;
    let panicked = AtomicBool::new(false);
    let transport = ScriptedTransport::new(move |_, batch| {
        assert!(panicked.swap(true, Ordering::SeqCst), "the transport's own mistake");
        Ok(vec![ok(); batch.len()])
    });
    let relay = to_billing(&world, &transport, RelayOptions::default());
    world.until("m0", "Sent").await;
    relay.stop().await;
}

#[tokio::test(start_paused = true)]
async fn l5_waiting_messages_respect_the_size_of_a_request() {
    let world = World::new().await;
    let body = "x".repeat(200 << 10);
    let due = world.clock.now().plus(Duration::from_secs(30));
    let large = |_| NewMessage::json("billing", "Pay", &body).unwrap().due(due);
    world.enqueue((0..20).map(large).collect()).await;
    let largest = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&largest);
    let transport = ScriptedTransport::new(move |_, batch| {
        seen.fetch_max(batch.iter().map(|message| message.payload.len()).sum(), Ordering::SeqCst);
        Ok(vec![ok(); batch.len()])
    });
    let relay = to_billing(&world, &transport, RelayOptions::default());
    world.until_sent(20).await;
    let largest = largest.load(Ordering::SeqCst);
    assert!(largest <= RelayOptions::default().batch_bytes_max, "{largest} bytes in a request");
    relay.stop().await;
}
