//! The envelope byte for byte, and what it may and may not contain.

use twobox_core::wire::{self, Batch, Draft, Encoding, Envelope, Limits, Stamp};
use twobox_core::{Destination, ErrorKind, Payload, Timestamp};

use crate::generate::{NOW, encode, encode_signed, key, message};

const PLAIN: &str = concat!(
    r#"{"messageId":"m-1","sourceServiceId":"shop","messageType":"Signal","endpoint":"OrderApproved","#,
    r#""payload":{"n":1.50},"headers":{"rf-version":"2.0","rf-timestamp":"2026-02-14T12:00:00.000000Z","#,
    r#""rf-outbox":"outbox-1","rf-destination":"billing","rf-created":"1771070400000000","#,
    r#""rf-available":"1771070400000000","rf-expires":"9223372036854775807","rf-replay":"0","#,
    r#""rf-content-type":"application/json"}}"#
);

fn parse(text: &str) -> twobox_core::Result<wire::Parsed> {
    wire::parse(text.as_bytes(), &Limits::default())
}

#[test]
fn rf_09_the_envelope_byte_for_byte() {
    let message = message("application/json", *br#"{"n":1.50}"#);
    assert_eq!(String::from_utf8(encode(&message)).unwrap(), PLAIN);
    assert_eq!(parse(PLAIN).unwrap().message, message);
}

#[test]
fn rf_09_other_content_types_travel_as_base64() {
    let text = String::from_utf8(encode(&message("text/plain", "hi"))).unwrap();
    assert!(text.contains(r#""payload":"aGk=","#) && text.contains(r#""rf-encoding":"base64""#), "{text}");
    let parsed = parse(&text).unwrap();
    assert_eq!((parsed.encoding, parsed.message.payload), (Encoding::Base64, Payload::new("hi")));
    let text = String::from_utf8(encode(&message("application/json", ""))).unwrap();
    assert!(text.contains(r#""payload":"","#), "{text}");
    assert!(parse(&text).unwrap().message.payload.is_empty());
}

#[test]
fn rf_09_the_payload_is_never_rewritten() {
    let odd = r#"{"b":1, "b":2,"a":0.10,  "u":"\u00e9","n":123456789012345678901234567890}"#;
    let parsed = parse(&PLAIN.replace(r#"{"n":1.50}"#, &format!("\n{odd}\t"))).unwrap();
    assert_eq!(parsed.message.payload.as_bytes(), odd.as_bytes());
}

#[test]
fn rf_09_what_is_unknown_is_tolerated() {
    let text = PLAIN
        .replace(r#"{"messageId""#, r#"{"future":[{"x":1}],"messageId""#)
        .replace(r#""rf-replay":"0""#, r#""rf-future":"1","traceparent":"00-1""#)
        .replace(r#""payload""#, "\"correlationId\" : null ,\n\"payload\"");
    let parsed = parse(&text).unwrap();
    assert_eq!(parsed.message.headers.get("traceparent"), Some("00-1"));
    assert_eq!(parsed.message.headers.get("rf-future"), None);
    assert_eq!((parsed.message.replay, parsed.message.correlation_id), (0, None));
    let plain = PLAIN.replace(r#","rf-content-type":"application/json""#, "").replace("\"2.0\"", "\"2.7\"");
    assert_eq!(parse(&plain).unwrap().message.content_type, "application/json");
}

#[test]
fn rf_09_duplicate_names_are_refused() {
    for (from, to) in [
        (r#"{"messageId""#, r#"{"messageId":"m-2","messageId""#),
        (r#"{"messageId""#, r#"{"message\u0049d":"m-2","messageId""#),
        (r#"{"messageId""#, r#"{"x":1,"x":1,"messageId""#),
        (r#""rf-replay":"0""#, r#""rf-replay":"0","rf-replay":"1""#),
        (r#""rf-replay":"0""#, r#""a":"0","a":"0""#),
        (r#""headers""#, r#""headers":{},"headers""#),
    ] {
        let error = parse(&PLAIN.replacen(from, to, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{to}");
        assert!(error.to_string().contains("two members of the same name"), "{error}");
    }
}

#[test]
fn rf_09_what_is_missing_is_named() {
    for (from, name) in [
        (r#""messageId":"m-1","#, "messageId"),
        (r#""sourceServiceId":"shop","#, "sourceServiceId"),
        (r#""messageType":"Signal","#, "messageType"),
        (r#""endpoint":"OrderApproved","#, "endpoint"),
        (r#""payload":{"n":1.50},"#, "payload"),
        (r#""rf-timestamp":"2026-02-14T12:00:00.000000Z","#, "rf-timestamp"),
        (r#""rf-outbox":"outbox-1","#, "rf-outbox"),
        (r#""rf-destination":"billing","#, "rf-destination"),
        (r#""rf-created":"1771070400000000","#, "rf-created"),
        (r#""rf-available":"1771070400000000","#, "rf-available"),
        (r#""rf-expires":"9223372036854775807","#, "rf-expires"),
    ] {
        let error = parse(&PLAIN.replacen(from, "", 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Undecodable);
        assert!(error.to_string().ends_with(name), "{error}");
    }
}

#[test]
fn rf_09_values_that_cannot_be_are_refused() {
    for (from, to) in [
        (r#""m-1""#, r#""""#),
        (r#""m-1""#, "7"),
        ("Signal", "signal"),
        ("\"2.0\"", "\"3.0\""),
        ("\"2.0\"", "\"20\""),
        ("12:00:00.000000Z", "25:00:00Z"),
        ("9223372036854775807", "9223372036854775808"),
        (r#""rf-replay":"0""#, r#""rf-replay":"-1""#),
        (r#""rf-replay":"0""#, r#""rf-encoding":"gzip""#),
        (r#""rf-replay":"0""#, r#""rf-encoding":"base64""#),
        (r#""rf-replay":"0""#, r#""rf-hmac":"x""#),
        (r#""rf-replay":"0""#, r#""rf-key-id":"k""#),
        (r#""rf-replay":"0""#, r#""rf-key-id":"k","rf-hmac":"AAAA""#),
        (r#""rf-replay":"0""#, r#""RF-Replay":"0""#),
        (r#""rf-replay":"0""#, r#""a":1"#),
        (r#""rf-replay":"0""#, r#""a":"\u0007""#),
        ("application/json", r"a\nb"),
        ("outbox-1", r"\u0000"),
        ("}}", "}} x"),
        ("}}", "}"),
    ] {
        assert!(parse(&PLAIN.replacen(from, to, 1)).is_err(), "{to}");
    }
}

#[test]
fn rf_09_what_messages_of_a_batch_do_not_share_is_read_from_each() {
    let changes = [
        ("shop", "bank"),
        ("billing", "mail"),
        ("OrderApproved", "OrderPaid"),
        ("2026-02-14T12:00:00.000000Z", "2026-02-14T12:00:00.000001Z"),
    ];
    for (from, to) in changes {
        let other = PLAIN.replacen(from, to, 1);
        let batch = format!("[{PLAIN},{PLAIN},{other},{PLAIN}]");
        let items = wire::parse_batch(batch.as_bytes(), &Limits::default()).unwrap();
        let read: Vec<_> = items.into_iter().map(Result::unwrap).collect();
        let alone = [PLAIN, PLAIN, &other, PLAIN].map(|text| parse(text).unwrap());
        assert_eq!(read, alone, "{to}");
        assert_ne!(read[1], read[2], "{to}");
    }
}

#[test]
fn rf_09_one_bad_envelope_does_not_spoil_its_neighbours() {
    let deep = "[".repeat(1_000) + &"]".repeat(1_000);
    let batch = format!("[{PLAIN}, 7, {{}}, {deep},{PLAIN}]");
    let items = wire::parse_batch(batch.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(items.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, false, true]);
    assert!(wire::parse_batch(format!("[{PLAIN}, }}]").as_bytes(), &Limits::default()).is_err());
    assert!(wire::parse_batch(PLAIN.as_bytes(), &Limits::default()).is_err());
}

#[test]
fn l3_the_empty_batch_is_a_probe() {
    assert_eq!(Batch::new().into_bytes(), b"[]");
    assert!(wire::parse_batch(b" [ ] ", &Limits::default()).unwrap().is_empty());
}

#[test]
fn s17_debug_shows_neither_payload_nor_signature() {
    let message = message("application/json", *b"\"canary\"");
    let draft = Draft::new(&message);
    let bytes = encode_signed(&message, NOW, &key("k", 1));
    let parsed = wire::parse(&bytes, &Limits::default()).unwrap();
    let mac = parsed.signature.as_ref().unwrap().mac.to_base64();
    let envelope = Envelope::read(&bytes, &Limits::default()).unwrap();
    let mut batch = Batch::new();
    batch.push(&draft, &Stamp { sent: NOW, outbox: "o", signature: None });
    let shown = format!("{draft:?} {parsed:?} {envelope:?} {batch:?} {:?}", parsed.signed());
    assert!(!shown.contains("canary") && !shown.contains(&mac), "{shown}");
}

#[test]
fn rf_09_a_plain_sender_needs_the_seven_fields_only() {
    let now = Timestamp::from_micros(1_771_070_400_000_000);
    let billing = Destination::new("billing").unwrap();
    let plain = |headers: &str| {
        format!(
            r#"{{"messageId":"m","sourceServiceId":"shop","messageType":"Signal","endpoint":"e","payload":{{"a": 1}}{headers}}}"#
        )
    };
    let read = |text: &str| wire::parse_plain(text.as_bytes(), &Limits::default(), &billing, now);
    let parsed = read(&plain("")).unwrap();
    assert_eq!(parsed.message.destination, billing);
    assert_eq!((parsed.message.created, parsed.message.available, parsed.sent), (now, now, now));
    assert_eq!(parsed.message.expires, Timestamp::MAX);
    assert_eq!(parsed.message.payload.as_bytes(), br#"{"a": 1}"#);
    let dated =
        read(&plain(r#","headers":{"rf-version":"2.0","rf-timestamp":"2026-02-14T11:00:00Z"}"#)).unwrap();
    assert_eq!(dated.message.available, Timestamp::from_micros(1_771_066_800_000_000));
    assert!(read(&plain(r#","headers":{"rf-timestamp":"yesterday"}"#)).is_err());
    assert!(wire::parse(plain("").as_bytes(), &Limits::default()).is_err(), "signed senders say everything");
}
