//! Lets canaries flow through everything (S17): a payload, a secret, a header's value, a response and what panics say.
//!
//! `canary FOLDER` does what goes wrong in a service's life and prints all it can be made to say: the log at its most
//! talkative, errors, `Debug` of everything that holds a canary, figures. A test looks for the canaries in it.

mod network;
mod shown;
mod values;

use std::path::Path;
use std::time::Duration;

use twobox::ports::DeadLetterStore;
use twobox::{
    BoxError, Builder, DeadLetterFilter, Http, MessageId, NewMessage, NewWork, Outbox, Policy, Refusal,
    RelayOptions, Response, Running, Sqlite, Timing, Twobox, WorkFilter, WorkerOptions,
};
use twobox_testkit::{Log, eventually};

use crate::values::{HEADER, PANIC, PAYLOAD, RESPONSE, Typed, keyring, keyrings};

const EVER: Duration = Duration::from_secs(60);

/// Endpoints of billing, and what becomes of a message there.
const ENDPOINTS: [(&str, &str); 9] = [
    ("Good", "Sent"),
    ("Retry", "Failed"),
    ("Reject", "Failed"),
    ("Panic", "Failed"),
    ("Constraint", "Failed"),
    ("Typed", "Failed"),
    ("Prepared", "Failed"),
    ("Claimed", "Failed"),
    ("Nobody", "Failed"),
];

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    twobox::withhold_panic_messages();
    let folder = std::env::args().nth(1).ok_or("usage: canary FOLDER")?;
    let log = Log::install();
    let (shop, billing) = (open(&folder, "shop.db").await?, open(&folder, "billing.db").await?);
    let running = live(&log, &shop, &billing).await?;
    shown::show(&shop, &billing).await?;
    for part in running {
        part.shutdown().await;
    }
    println!("== log");
    log.lines().iter().for_each(|line| println!("{line}"));
    Ok(())
}

async fn open(folder: &str, name: &str) -> twobox::Result<Sqlite> {
    let db = Sqlite::open(Path::new(folder).join(name)).await?;
    db.migrate().await?;
    db.transaction::<_, twobox::Error, _>(|tx| {
        tx.execute("CREATE TABLE effects (text TEXT NOT NULL UNIQUE)", [])
    })
    .await?;
    Ok(db)
}

/// Everything that can go wrong, does.
async fn live(log: &Log, shop: &Sqlite, billing: &Sqlite) -> Result<Vec<Running>, BoxError> {
    let server = twobox::HttpServer::signed("127.0.0.1:0", keyrings(1)?).await?.meters(billing.meters());
    let url = format!("http://{}", server.local_addr());
    let receiver = handlers(hasty(Twobox::builder("billing", billing))).listen(server).build()?;
    let garbage = network::garbage().await?;
    let sender = hasty(Twobox::builder("shop", shop))
        .destination("billing", Http::signed(&url, keyring(1)?)?)
        .destination("forged", Http::signed(&url, keyring(2)?)?)
        .destination("garbage", Http::signed(&garbage, keyring(1)?)?)
        .destination("unsigned-garbage", Http::unsigned(&garbage)?)
        .on_dead_letter(|_| async { panic!("{PANIC}") })
        .build()?;
    enqueue(shop, sender.outbox()).await?;
    damage(shop)?;
    let running = vec![receiver.start(), sender.start()];
    for (endpoint, status) in ENDPOINTS {
        until(shop, endpoint, status).await?;
    }
    until(shop, "Damaged", "Failed").await?;
    // The same message again is a duplicate.
    let outbox = sender.outbox();
    shop.transaction(move |tx| outbox.enqueue(tx, &message("billing", "Good")?)).await?;
    for topic in ["Queued", "External", "Rejected"] {
        receiver.inbox().enqueue(&NewWork::new(topic, "shop", topic, PAYLOAD)?).await?;
    }
    network::strangers(&url).await?;
    for words in [
        ["message=duplicate", "Good"],
        ["HMAC verification failed", "billing-forged"],
        ["lane held", "garbage"],
        ["a message is a dead letter now", "Queued"],
        ["a message is a dead letter now", "External"],
        ["a message is a dead letter now", "Rejected"],
        ["the dead-letter callback panicked", "Reject"],
        ["request refused", "malformed"],
    ] {
        let said = async || {
            log.lines().iter().any(|line| words.iter().all(|word| line.contains(word))).then_some(())
        };
        eventually(words[0], EVER, said).await;
    }
    Ok(running)
}

/// Two attempts, a moment apart, so that everything is over soon.
fn hasty(builder: Builder) -> Builder {
    let moment = Duration::from_millis(1);
    let two = std::num::NonZeroU32::new(2).unwrap_or(std::num::NonZeroU32::MIN);
    let retry = Policy::default().attempts_max(two).base(moment).max(moment).jitter(moment);
    let probe = Policy::default().base(moment).max(Duration::from_millis(50)).jitter(moment);
    let timing = Timing { retry: retry.clone(), ..Timing::default() };
    let worker = WorkerOptions { poll_max: Duration::from_millis(100), ..WorkerOptions::default() };
    builder.relay(RelayOptions { timing, probe, ..RelayOptions::default() }).retry(retry).worker(worker)
}

/// Handlers that fail in every way, with the payload at hand.
fn handlers(builder: Builder) -> Builder {
    let text = |message: &twobox::Message| String::from_utf8_lossy(message.payload.as_bytes()).into_owned();
    builder
        .handle_raw("Good", |_, _, _| Response::json(&RESPONSE).map_err(Refusal::from))
        .handle_raw("Retry", |_, _, _| Err(Refusal::retry("not now")))
        .handle_raw("Reject", |_, _, _| Err(Refusal::reject("never")))
        .handle_raw("Panic", move |_, message, _| panic!("cannot handle {} {PANIC}", text(message)))
        .handle_raw("Constraint", move |tx, message, _| {
            let text = text(message);
            tx.execute("INSERT INTO effects VALUES (?1)", [&text])?;
            tx.execute("INSERT INTO effects VALUES (?1)", [&text])?;
            Ok(Response::empty())
        })
        .handle(|_, _: Typed, _| Ok(()))
        .handle_async(|prepared: values::Prepared, _| async move {
            assert!(prepared.0.is_empty(), "cannot prepare {} {PANIC}", prepared.0);
            Ok(|_: &mut twobox::SqliteTx<'_>, _: &twobox::Context<'_>| Ok(()))
        })
        .handle_claimed(|claimed: values::Claimed, _| async move {
            assert!(claimed.0.is_empty(), "cannot claim {} {PANIC}", claimed.0);
            Ok(())
        })
        .handle_queued_raw("Queued", move |_, message, _| panic!("cannot work on {} {PANIC}", text(message)))
        .handle_queued_raw("Rejected", |_, _, _| Err(Refusal::reject("never")))
        .handle_external_raw("External", move |context| async move {
            panic!("cannot call for {} {PANIC}", text(&context.message))
        })
}

fn message(destination: &str, endpoint: &str) -> twobox::Result<NewMessage> {
    let id = if destination == "billing" { endpoint.into() } else { format!("billing-{destination}") };
    let mut message = NewMessage::json(destination, endpoint, &PAYLOAD)?.id(MessageId::new(id)?);
    message.headers.insert("authorization", HEADER)?;
    Ok(message)
}

async fn enqueue(db: &Sqlite, outbox: Outbox) -> twobox::Result<()> {
    db.transaction(move |tx| {
        for (endpoint, _) in ENDPOINTS {
            outbox.enqueue(tx, &message("billing", endpoint)?)?;
        }
        outbox.enqueue(tx, &message("billing", "Damaged")?)?;
        for destination in ["forged", "garbage", "unsigned-garbage"] {
            outbox.enqueue(tx, &message(destination, "Good")?)?;
        }
        Ok(())
    })
    .await
}

/// Damages a row with what must not be quoted.
fn damage(db: &Sqlite) -> Result<(), BoxError> {
    let connection = twobox::rusqlite::Connection::open(db.path())?;
    // What is of another type than expected is what parsers like to quote.
    let headers = format!("\"{HEADER}\"");
    connection.execute("UPDATE outbox_log SET headers = ?1 WHERE message_id = 'Damaged'", [headers])?;
    Ok(())
}

async fn until(db: &Sqlite, id: &str, status: &str) -> twobox::Result<()> {
    let id = MessageId::new(id)?;
    let what = format!("{id} {status}");
    eventually(&what, EVER, async || {
        db.message_status(&id).await.ok().flatten().filter(|message| message.status == status).map(drop)
    })
    .await;
    Ok(())
}

/// What a listing shows.
async fn listed(shop: &Sqlite, billing: &Twobox) -> twobox::Result<String> {
    let letters = shop.dead_letters(&DeadLetterFilter::default(), None, 100).await?;
    let work = billing.inbox().dead_letters(&WorkFilter::default(), None, 100).await?;
    Ok(format!("{letters:?}\n{work:?}"))
}
