//! Queued messages and a destination that is down, and what is counted of them.

use std::num::NonZeroU32;
use std::time::Duration;

use twobox::meters::{HandledOutcome, RequestOutcome};
use twobox::prometheus::scrape;
use twobox::{
    Consumer, Destination, Http, NewMessage, NewWork, Policy, Refusal, Response, Source, Sqlite, Twobox,
};
use twobox_testkit::eventually;

use crate::page::parse;

const EVER: Duration = Duration::from_secs(60);

async fn open(folder: &tempfile::TempDir) -> Sqlite {
    let db = Sqlite::open(folder.path().join("box.db")).await.unwrap();
    db.migrate().await.unwrap();
    db
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_21_queued_messages_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder).await;
    let moment = Duration::from_millis(1);
    let retry = Policy::default().attempts_max(NonZeroU32::new(2).unwrap()).base(moment).max(moment);
    let service = Twobox::builder("billing", &db)
        .handle_queued_raw("Inside", |_, _, _| Ok(Response::empty()))
        .handle_queued_raw("Never", |_, _, _| Err(Refusal::retry("never")))
        .handle_external_raw("Outside", |_| async { Ok(Response::empty()) })
        .retry(retry.jitter(moment))
        .build()
        .unwrap();
    let running = service.start();
    for topic in ["Inside", "Outside", "Never"] {
        service.inbox().enqueue(&NewWork::new(topic, "shop", topic, "{}").unwrap()).await.unwrap();
    }
    let inbox = db.meters().inbox(&Consumer::new("billing").unwrap());
    eventually("died", EVER, async || (inbox.handled.get(HandledOutcome::Died) == 1).then_some(())).await;
    eventually("done", EVER, async || (inbox.handled.get(HandledOutcome::Done) == 2).then_some(())).await;
    assert_eq!(inbox.handled.get(HandledOutcome::Retried), 1);
    assert_eq!((inbox.claimed.get(), inbox.work.steps().1), (4, 4), "Never was claimed and tried twice");
    eventually("empty", EVER, async || (inbox.in_hand.get() == 0).then_some(())).await;
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rf_21_an_outage_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder).await;
    // Nobody listens there.
    let nowhere = Http::unsigned("http://127.0.0.1:9").unwrap();
    let service = Twobox::builder("shop", &db).destination("billing", nowhere).build().unwrap();
    let outbox = service.outbox();
    db.transaction(move |tx| outbox.enqueue(tx, &NewMessage::json("billing", "Pay", &7)?)).await.unwrap();
    let running = service.start();
    let lane = db.meters().lane(&Source::new("shop").unwrap(), &Destination::new("billing").unwrap());
    let probed = async || (lane.probes.get(RequestOutcome::Unreachable) > 0).then_some(());
    eventually("probed", EVER, probed).await;
    assert_eq!(
        lane.requests.get(RequestOutcome::Unreachable),
        1,
        "the message is not sent again before that"
    );
    let held = async || (lane.breaker.get() == 1 && lane.leased.get() == 1).then_some(());
    eventually("held", EVER, held).await;
    let shown = async || {
        let figures = parse(&scrape(&db, &db.meters(), db.clock().now().plus(Duration::from_secs(10))).await);
        let one = |name: &str| figures[name].samples[0].2;
        assert_eq!(one("rf_outbox_pending_count"), 1.0);
        let oldest = one("twobox_outbox_oldest_pending_seconds");
        assert!((10.0..70.0).contains(&oldest), "{oldest}");
        // The store shows it a moment later.
        (one("twobox_outbox_lane_held_seconds") > 1.0).then_some(())
    };
    eventually("shown", EVER, shown).await;
    running.shutdown().await;
    assert_eq!((lane.leased.get(), lane.breaker.get(), lane.oldest.get()), (0, 0, 0));
}

/// A database without tables has no figures; the page says so, and has those of the process.
#[tokio::test(flavor = "multi_thread")]
async fn rf_21_a_store_that_cannot_be_read_takes_nothing_else_away() {
    let folder = tempfile::tempdir().unwrap();
    let db = Sqlite::open(folder.path().join("empty.db")).await.unwrap();
    let figures = parse(&scrape(&db, &db.meters(), db.clock().now()).await);
    assert_eq!(figures["twobox_store_readable"].samples[0].2, 0.0);
    assert!(figures["rf_outbox_pending_count"].samples.is_empty(), "nothing is made up");
    assert_eq!(figures["twobox_store_stopped"].samples.len(), 1);
}
