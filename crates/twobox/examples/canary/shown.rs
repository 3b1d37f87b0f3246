//! Everything that can be shown of what holds a canary.

use std::fmt::Debug;
use std::sync::Arc;

use twobox::audited;
use twobox::ports::ops::{AuditEntry, AuditFilter, InboxFilter, OutboxFilter};
use twobox::ports::{InboxStore, OpsStore};
use twobox::prometheus::scrape;
use twobox::wire::{self, Asked, Limits};
use twobox::{
    Answer, BoxError, Consumer, DeliveryError, Destination, Error, Headers, Http, Link, Message, MessageKey,
    NewWork, OwnerToken, Payload, Response, Source, Sqlite, Timestamp, Twobox,
};

use crate::values::{HEADER, PAYLOAD, RESPONSE, key, keyring, keyrings, secret};
use crate::{listed, message};

fn say(what: &str, value: &dyn Debug) {
    println!("{what}: {value:?}\n{value:#?}");
}

pub(crate) async fn show(shop: &Sqlite, billing: &Sqlite) -> Result<(), BoxError> {
    println!("== debug");
    let service = Twobox::builder("billing", billing).build()?;
    values(shop, &service)?;
    secrets()?;
    wired()?;
    errors();
    println!("== rows");
    for id in ["Good", "Panic", "Damaged", "Constraint", "Typed"] {
        say("status", &shop.message_status(&id.try_into()?).await?);
        let (consumer, source) = (Consumer::new("billing")?, Source::new("shop")?);
        say("record", &billing.inbox_record(&consumer, &source, &id.try_into()?).await?);
    }
    println!("{}", listed(shop, &service).await?);
    claimed(&service).await?;
    println!("== figures");
    for db in [shop, billing] {
        say("meters", &db.meters());
        println!("{}", scrape(db, &db.meters(), db.clock().now()).await);
    }
    operated(shop, billing).await
}

/// What operators see, and what is written down of what they do.
async fn operated(shop: &Sqlite, billing: &Sqlite) -> Result<(), BoxError> {
    println!("== operators");
    say("outbox", &shop.outbox_stats(1_000).await?);
    say("inbox", &billing.inbox_stats().await?);
    say("outbox list", &shop.outbox_list(&OutboxFilter::default(), None, 100).await?);
    say("inbox list", &billing.inbox_list(&InboxFilter::default(), None, 100).await?);
    for id in ["Good", "Panic", "Damaged", "Queued"] {
        say("outbox message", &shop.outbox_message(&id.try_into()?).await?);
        say("inbox message", &billing.inbox_message(&id.try_into()?).await?);
    }
    let entry = AuditEntry {
        actor: "operator".into(),
        action: "outbox.purge".into(),
        subject: "billing".into(),
        detail: serde_json::json!({}),
    };
    let failing = async { Headers::from_json(&format!("\"{HEADER}\"")).map(drop) };
    say("audited", &audited(shop, &entry, failing, |()| serde_json::json!({})).await);
    say("audit", &shop.audit_list(&AuditFilter::default(), None, 100).await?);
    Ok(())
}

fn values(db: &Sqlite, service: &Twobox) -> Result<(), BoxError> {
    let new = message("billing", "Good")?;
    say("new message", &new);
    let mut headers = Headers::default();
    headers.insert("authorization", HEADER)?;
    say("headers", &headers);
    let (id, insert) = service.outbox().insert(&new)?;
    say("insert", &(id, insert));
    let response = Response::json(&RESPONSE)?;
    say("response", &response);
    say("answers", &[Answer::Done(Some(response.clone())), Answer::Duplicate(Some(response))]);
    say("payload", &Payload::new(PAYLOAD.as_bytes().to_vec()));
    say("work", &NewWork::new("Queued", "shop", "debug", PAYLOAD)?.headers(headers));
    say("service", service);
    say("outbox", &service.outbox());
    say("inbox", &service.inbox());
    say("database", db);
    Ok(())
}

fn secrets() -> Result<(), BoxError> {
    say("key", &key(1)?);
    say("keyring", &keyring(1)?);
    say("keyrings", &keyrings(1)?);
    say("transport", &Http::signed("http://127.0.0.1:1", keyring(1)?)?);
    say("short secret", &twobox::signing::SecretKey::new(&secret(1).as_bytes()[..10]));
    say("bad URL", &Http::signed(&format!("http://{HEADER}@host"), keyring(1)?));
    Ok(())
}

/// A message as it travels, and what can be said of it.
fn wired() -> Result<(), BoxError> {
    let new = message("billing", "Good")?;
    let message = Arc::new(Message {
        id: "wired".try_into()?,
        source: Source::new("shop")?,
        destination: new.destination,
        endpoint: new.endpoint,
        message_type: new.message_type,
        payload: new.payload,
        content_type: new.content_type,
        correlation_id: None,
        ordering_key: None,
        headers: new.headers,
        created: Timestamp::default(),
        available: Timestamp::default(),
        expires: Timestamp::MAX,
        replay: 0,
    });
    let (source, destination) = (Source::new("shop")?, Destination::new("billing")?);
    let (link, key) = (Link { source, destination, outbox: "outbox".into() }, key(1)?);
    let (asked, body) = Asked::encode(&link, &[Arc::clone(&message)], Timestamp::default(), Some(&key));
    say("message", &message);
    say("asked", &asked);
    let parsed = wire::parse_batch(&body, &Limits::default())?;
    assert!(parsed.iter().all(|item| item.as_ref().is_ok_and(|item| item.message == *message)));
    say("parsed", &parsed);
    say("delivery error", &DeliveryError::ambiguous("cut").with_source(Error::invalid("no")));
    Ok(())
}

fn errors() {
    println!("== errors");
    say("headers", &Headers::from_json(&format!("\"{HEADER}\"")));
    say("refusal", &wire::parse_refusal(PAYLOAD.as_bytes()));
    say("envelope", &wire::parse(format!("{{\"payload\": {PAYLOAD}}}").as_bytes(), &Limits::default()));
    say(
        "answer",
        &wire::parse_answer(
            format!("{{\"messageId\": {PAYLOAD}").as_bytes(),
            &"x".try_into().expect("a name"),
        ),
    );
}

/// A message in a worker's hands.
async fn claimed(service: &Twobox) -> Result<(), BoxError> {
    let (inbox, owner) = (service.inbox(), OwnerToken::mint(&twobox_testkit::SeededRandom::new(7)));
    inbox.enqueue(&NewWork::new("Later", "shop", "claimed", PAYLOAD)?).await?;
    say("claimed", &inbox.claim(owner, std::time::Duration::from_secs(30), 10).await?);
    say("record", &inbox.get(&MessageKey::new("shop", "claimed")?).await?);
    Ok(())
}
