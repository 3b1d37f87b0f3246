//! What operators see of the inbox: counters, listings, one message (RF-22).

use std::time::Duration;

use twobox_core::lifecycle::Reason;
use twobox_core::ports::ops::{EXAMINED_MAX, InboxCounts, InboxFilter, InboxStats, InboxSummary, PageToken};
use twobox_core::ports::{
    Answer, ClaimFirst, ClaimOutcome, DedupStore, Delivery, InboxStatus, InboxStore, OpsStore, QueueStore,
    SweepPlan, SweepStore, Treatment, WorkFilter,
};
use twobox_core::{Clock, Consumer, Message, Payload, Response};

use super::fixture::{HandlerScript, StoreFixture, deliver, delivery, keyed, message, message_from, name};
use super::worker::{SECOND, Worker, key, only_id};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn billing() -> Consumer {
    name("billing")
}

/// Everything that matches, page by page.
async fn list<F: StoreFixture>(fixture: &F, filter: &InboxFilter, limit: usize) -> Vec<InboxSummary> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = fixture.store().inbox_list(filter, after.as_ref(), limit).await.expect("lists");
        assert!(page.items.len() <= limit);
        found.extend(page.items);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn search<F: StoreFixture>(fixture: &F, filter: InboxFilter) -> Vec<String> {
    list(fixture, &filter, 2).await.into_iter().map(|found| found.message_id).collect()
}

/// What the counters say is what a listing finds.
async fn agree<F: StoreFixture>(fixture: &F) -> InboxCounts {
    let InboxStats { peers, total } = fixture.store().inbox_stats().await.expect("counts");
    let mut sums = InboxCounts::default();
    peers.iter().for_each(|peer| sums.add(&peer.counts));
    assert_eq!(sums, total);
    let rows = list(fixture, &InboxFilter::default(), 100).await;
    let open = |row: &&InboxSummary| row.is_queued && row.status == InboxStatus::Processing;
    assert_eq!(total.rows, rows.len() as u64, "{total:?} {rows:?}");
    assert_eq!(total.queued, rows.iter().filter(open).count() as u64, "{total:?} {rows:?}");
    let dead =
        fixture.store().dead_work(&billing(), &WorkFilter::default(), None, 1_000).await.expect("lists");
    assert_eq!(total.dead, dead.len() as u64, "{total:?} {dead:?}");
    total
}

/// S18: counters follow deliveries: handled, again, rejected, run again, with another body, too old, forgotten.
pub async fn s18_rf_22_inbox_counters_follow_deliveries<F: StoreFixture>() {
    let fixture = F::fresh().await;
    assert_eq!(agree(&fixture).await, InboxCounts::default());
    let messages = ["a", "b", "c"].map(|id| message(&fixture, id, "billing"));
    let script = |message: &Message| {
        Some(if message.id.as_str() == "c" { HandlerScript::EffectThenReject } else { HandlerScript::Effect })
    };
    deliver(&fixture, &messages, script).await;
    let counts = agree(&fixture).await;
    assert_eq!(
        (counts.rows, counts.done, counts.died, counts.dead),
        (3, 2, 1, 0),
        "a rejection is the sender's"
    );
    deliver(&fixture, &messages, script).await;
    let changed = Message { payload: Payload::new(b"else".to_vec()), ..messages[0].clone() };
    deliver(&fixture, &[changed], script).await;
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.duplicates, counts.conflicts), (3, 2, 1));
    let again = Message { replay: 1, ..messages[2].clone() };
    deliver(&fixture, &[again], |_| Some(HandlerScript::Effect)).await;
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.done, counts.died), (3, 3, 1));
    let failed = message(&fixture, "d", "billing");
    deliver(&fixture, &[failed], |_| Some(HandlerScript::EffectThenRetry)).await;
    assert_eq!(agree(&fixture).await.rows, 3, "what failed left nothing");
    fixture.clock().advance(DAY);
    deliver(&fixture, &[message(&fixture, "e", "billing")], |_| Some(HandlerScript::Effect)).await;
    let plan = SweepPlan { dedup_window: SECOND * 3600, ..SweepPlan::default() };
    fixture.store().sweep(&plan).await.expect("sweeps");
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.done), (1, 4));
    deliver(&fixture, &messages[..1], script).await;
    let fixture = fixture.reopen().await;
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.too_old), (1, 1));
    let peer = fixture.store().inbox_stats().await.expect("counts").peers.remove(0);
    assert_eq!((peer.consumer.as_str(), peer.source.as_str()), ("billing", "shop"));
    assert!(peer.watermark.is_some());
}

/// S18: counters follow queued messages: stored, queued, done, dead, replayed, purged.
pub async fn s18_rf_22_inbox_counters_follow_the_queue<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let stored = message(&fixture, "wire", "billing");
    let queued = Delivery { treatment: Treatment::Queue, ..delivery(&fixture, &stored, None) };
    let answers = fixture.store().process(vec![queued], SECOND).await.expect("processes");
    assert!(matches!(answers[0], Answer::Done(_)));
    worker.put_all(["a", "b", "c", "d"].map(|id| message(&fixture, id, "billing"))).await;
    worker
        .put(Message { payload: Payload::new(b"changed".to_vec()), ..message(&fixture, "a", "billing") })
        .await;
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.queued, counts.mismatches), (5, 5, 1));
    let claimed = worker.claim(5).await;
    assert_eq!(agree(&fixture).await.queued, 5, "leased ones are still to be done");
    worker.ack(&claimed[..1]).await;
    worker.fail(&claimed[1..3]).await;
    worker.abandon(&claimed[3..4]).await;
    worker.handle(vec![claimed[4].clone()], |_| HandlerScript::Effect).await;
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.queued, counts.done, counts.dead), (5, 1, 2, 2));
    worker.store().replay_work(&worker.queue, &WorkFilter::default(), 1).await.expect("replays");
    let counts = agree(&fixture).await;
    assert_eq!((counts.queued, counts.dead, counts.died), (2, 1, 2));
    worker.store().purge_work(&worker.queue, &WorkFilter::default(), 10).await.expect("purges");
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.queued, counts.dead), (5, 2, 0), "it is still recognised");
    fixture.clock().advance(DAY * 2);
    worker.claim(10).await;
    let counts = agree(&fixture).await;
    assert_eq!((counts.queued, counts.dead, counts.died), (1, 1, 3), "one was replayed and has no end");
}

/// S18: counters follow what is done by hand: noticed, claimed, kept, released, marked.
pub async fn s18_rf_22_inbox_counters_follow_claims_and_marks<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let (store, consumer) = (fixture.store(), billing());
    let claim = async |id: &str| {
        let first = ClaimFirst {
            key: key(id),
            topic: name("Pay"),
            handler: "h".into(),
            hash: None,
            available: None,
            replay: 0,
        };
        store.claim_first(&consumer, &first).await.expect("claims").expect("is free")
    };
    let noticed = async |id: &str| store.already_processed(&consumer, &key(id), None).await.expect("notices");
    noticed("seen").await;
    noticed("seen").await;
    let (kept, released) = (claim("kept").await, claim("released").await);
    claim("open").await;
    assert_eq!(agree(&fixture).await.rows, 4);
    store
        .settle_claim(&consumer, &key("kept"), kept, &ClaimOutcome::Kept("never".into()))
        .await
        .expect("settles");
    store
        .settle_claim(&consumer, &key("released"), released, &ClaimOutcome::Released)
        .await
        .expect("settles");
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.dead, counts.died), (3, 1, 1));
    store.mark_processed(&consumer, &key("kept"), &Response::empty()).await.expect("marks");
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.dead, counts.done), (3, 0, 1));
    store.mark_dead(&consumer, &key("seen"), "never").await.expect("marks");
    assert_eq!(agree(&fixture).await.dead, 1);
    let worker = Worker::new(&fixture, 1);
    store.replay_work(&worker.queue, &only_id("seen"), 10).await.expect("replays");
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.dead), (2, 0), "as if it had never been seen");
    worker.put(message(&fixture, "queued", "billing")).await;
    store.mark_processed(&consumer, &key("queued"), &Response::empty()).await.expect("marks");
    let counts = agree(&fixture).await;
    assert_eq!((counts.rows, counts.queued, counts.done), (3, 0, 2));
    fixture.clock().advance(DAY);
    assert_eq!(store.release_unfinished(&consumer, SECOND, 10).await.expect("releases"), 1);
    assert_eq!(agree(&fixture).await.rows, 2);
}

/// RF-22: the inbox is listed newest first and found by what is known about its messages.
pub async fn rf_22_the_inbox_is_listed_and_searched<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let start = fixture.clock().now();
    let script = |message: &Message| {
        Some(if message.id.as_str() == "b" { HandlerScript::EffectThenReject } else { HandlerScript::Effect })
    };
    deliver(&fixture, &["a", "b"].map(|id| message(&fixture, id, "billing")), script).await;
    fixture.clock().advance(DAY);
    let refund = Message { endpoint: name("Refund"), ..message_from(&fixture, "crm", "c", "billing") };
    deliver(&fixture, &[refund], script).await;
    worker.put_all([keyed(&fixture, "d", "k"), keyed(&fixture, "e", "k")]).await;
    fixture.store().already_processed(&name("audit"), &key("f"), None).await.expect("notices");
    let claim = ClaimFirst {
        key: key("g"),
        topic: name("Pay"),
        handler: "h".into(),
        hash: None,
        available: None,
        replay: 0,
    };
    fixture.store().claim_first(&billing(), &claim).await.expect("claims");
    let all = InboxFilter::default();
    for limit in 1..9 {
        let found = list(&fixture, &all, limit).await;
        let ids: Vec<_> = found.iter().map(|row| row.message_id.as_str()).collect();
        assert_eq!(ids, ["g", "f", "e", "d", "c", "b", "a"], "in pages of {limit}");
    }
    let of = |status| InboxFilter { status: Some(status), ..InboxFilter::default() };
    assert_eq!(search(&fixture, of(InboxStatus::Done)).await, ["c", "a"]);
    assert_eq!(search(&fixture, of(InboxStatus::Dead)).await, ["b"]);
    assert_eq!(search(&fixture, of(InboxStatus::Processing)).await, ["g", "e", "d"]);
    assert_eq!(search(&fixture, of(InboxStatus::Seen)).await, ["f"]);
    assert!(search(&fixture, of(InboxStatus::Expired)).await.is_empty());
    let filter = || InboxFilter::default();
    assert_eq!(search(&fixture, InboxFilter { source: Some(name("crm")), ..filter() }).await, ["c"]);
    assert_eq!(search(&fixture, InboxFilter { consumer: Some(name("audit")), ..filter() }).await, ["f"]);
    assert_eq!(search(&fixture, InboxFilter { endpoint: Some(name("Refund")), ..filter() }).await, ["c"]);
    assert_eq!(search(&fixture, InboxFilter { ordering_key: Some(name("k")), ..filter() }).await, ["e", "d"]);
    assert_eq!(search(&fixture, InboxFilter { message_id: Some(name("d")), ..filter() }).await, ["d"]);
    let day = |n| Some(start.plus(DAY * n));
    let old = InboxFilter { received_until: day(1), ..filter() };
    assert_eq!(search(&fixture, old).await, ["b", "a"]);
    let new = InboxFilter {
        received_from: day(1),
        received_until: day(2),
        status: Some(InboxStatus::Done),
        ..filter()
    };
    assert_eq!(search(&fixture, new).await, ["c"]);
    let shown = list(&fixture, &InboxFilter { message_id: Some(name("b")), ..filter() }, 1).await.remove(0);
    assert_eq!((shown.consumer.as_str(), shown.source.as_str(), shown.is_queued), ("billing", "shop", false));
    assert!(shown.last_error.is_some() && shown.processed == Some(start));
}

/// S18: a search that finds nothing looks at a bounded number of rows; what is not done is found by its own index.
pub async fn s18_rf_22_a_search_of_the_inbox_is_bounded<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let first = message(&fixture, "dead", "billing");
    deliver(&fixture, &[first], |_| Some(HandlerScript::EffectThenReject)).await;
    let many: Vec<Message> =
        (0..EXAMINED_MAX).map(|n| message(&fixture, &format!("m{n}"), "billing")).collect();
    for part in many.chunks(1_000) {
        deliver(&fixture, part, |_| Some(HandlerScript::Effect)).await;
    }
    let nothing = InboxFilter { endpoint: Some(name("Nothing")), ..InboxFilter::default() };
    let page = fixture.store().inbox_list(&nothing, None, 10).await.expect("lists");
    assert_eq!((page.items.len(), page.examined), (0, EXAMINED_MAX));
    let rest = fixture.store().inbox_list(&nothing, page.next.as_ref(), 10).await.expect("lists");
    assert_eq!((rest.items.len(), rest.examined, rest.next), (0, 1, None));
    let dead = InboxFilter { status: Some(InboxStatus::Dead), ..InboxFilter::default() };
    let page = fixture.store().inbox_list(&dead, None, 10).await.expect("lists");
    assert_eq!((page.items.len(), page.examined, page.next), (1, 1, None));
    assert_eq!(agree(&fixture).await.rows, EXAMINED_MAX as u64 + 1);
}

/// RF-22: one message of the inbox: its record, its lease, the size of its response, and no content.
pub async fn rf_22_a_message_of_the_inbox_is_shown<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    let canary = Payload::new(b"\"canary\"".to_vec());
    let handled = Message { payload: canary.clone(), ..message(&fixture, "a", "billing") };
    deliver(&fixture, &[handled], |_| Some(HandlerScript::Effect)).await;
    worker.put(Message { payload: canary, ..keyed(&fixture, "b", "k") }).await;
    let claimed = worker.claim(1).await;
    let show = async |id| fixture.store().inbox_message(&name(id)).await.expect("looks");
    let [a, b] = [show("a").await, show("b").await].map(|mut found| found.remove(0));
    assert_eq!((a.summary.status, a.response_bytes), (InboxStatus::Done, Some(8)));
    assert!(a.queued.is_none() && a.hash.is_some());
    let queued = b.queued.clone().expect("is queued");
    assert_eq!((queued.payload_bytes, queued.reason), (8, None));
    let (owner, until) = queued.lease.expect("is leased");
    assert_eq!(owner, worker.owner.as_bytes());
    assert_eq!(until, fixture.clock().now().plus(super::worker::LEASE));
    worker.fail(&claimed).await;
    let b = show("b").await.remove(0);
    assert_eq!((b.summary.status, b.summary.attempts), (InboxStatus::Dead, 1));
    assert_eq!(b.summary.last_error.as_deref(), Some("never"));
    assert_eq!(b.queued.as_ref().and_then(|queued| queued.reason), Some(Reason::Rejected));
    assert!(show("nobody").await.is_empty());
    let shown = format!("{a:?} {b:?} {:?}", list(&fixture, &InboxFilter::default(), 10).await);
    assert!(!shown.contains("canary"), "S17: {shown}");
}

/// S12, RF-22: keys of the queue that wait for somebody are listed, with what waits behind them.
pub async fn s12_rf_22_blocked_keys_of_the_inbox_are_listed<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    worker.put_all(["a", "b", "c"].map(|id| keyed(&fixture, id, "k"))).await;
    worker.put(keyed(&fixture, "free", "other")).await;
    assert!(fixture.store().blocked_work_keys(10).await.expect("lists").is_empty());
    let claimed = worker.claim(1).await;
    worker.fail(&claimed).await;
    let blocked = fixture.store().blocked_work_keys(10).await.expect("lists");
    let [one] = blocked.as_slice() else { panic!("{blocked:?}") };
    assert_eq!((one.ordering_key.as_str(), one.head.as_str(), one.waiting), ("k", "a", 2));
    assert_eq!((one.consumer.as_str(), one.source.as_str()), ("billing", "shop"));
    let key = one.ordering_key.clone();
    worker.store().release_work_key(&worker.queue, &name("shop"), &key).await.expect("releases");
    assert!(fixture.store().blocked_work_keys(10).await.expect("lists").is_empty());
}

/// RF-22: dead letters of the inbox are paged with tokens.
pub async fn rf_22_dead_letters_of_the_inbox_are_paged_with_tokens<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let worker = Worker::new(&fixture, 1);
    for id in ["a", "b", "c", "d", "e"] {
        let topic = if id == "c" { "Refund" } else { "Pay" };
        worker.put(Message { endpoint: name(topic), ..message(&fixture, id, "billing") }).await;
        let claimed = worker.claim(1).await;
        worker.fail(&claimed).await;
        fixture.clock().advance(SECOND);
    }
    let filter = WorkFilter { topic: Some(name("Pay")), ..WorkFilter::default() };
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page =
            fixture.store().dead_work_list(&billing(), &filter, after.as_ref(), 2).await.expect("lists");
        found.extend(page.items.into_iter().map(|letter| letter.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, ["a", "b", "d", "e"]);
    let one = fixture.store().dead_work_list(&billing(), &only_id("c"), None, 10).await.expect("lists");
    assert_eq!((one.items.len(), one.next), (1, None));
    let other = fixture.store().dead_work_list(&name("audit"), &filter, None, 10).await.expect("lists");
    assert!(other.items.is_empty());
    worker.put(message_from(&fixture, "web", "c", "billing")).await;
    let claimed = worker.claim(1).await;
    worker.fail(&claimed).await;
    let of_c = async |after: Option<&PageToken>| {
        let page = fixture.store().dead_work_list(&billing(), &only_id("c"), after, 1).await.expect("lists");
        (page.items.into_iter().map(|letter| letter.source).collect::<Vec<_>>(), page.next)
    };
    let (first, next) = of_c(None).await;
    assert_eq!((first, of_c(next.as_ref()).await), (vec!["shop".into()], (vec!["web".into()], None)));
}
