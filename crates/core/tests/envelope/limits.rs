//! Every limit, at its value and one beyond (S16).

use twobox_core::message::{HEADER_BYTES_MAX, HEADERS_MAX};
use twobox_core::wire::{self, DEPTH_MAX, Limits};
use twobox_core::{ErrorKind, Message};

use crate::generate::{encode, message};

/// Asserts that `bytes` pass `limits` and do not pass `tighter`.
fn assert_limit(bytes: &[u8], limits: &Limits, tighter: &Limits, what: &str) {
    wire::parse(bytes, limits).expect("within the limit");
    let error = wire::parse(bytes, tighter).expect_err("beyond the limit");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains(what), "{error}");
}

fn nested(depth: usize) -> Message {
    message("application/json", "[".repeat(depth) + &"]".repeat(depth))
}

#[test]
fn s16_bytes_of_an_envelope() {
    let bytes = encode(&message("application/json", "1"));
    let limits = |envelope_bytes| Limits { envelope_bytes, ..Limits::default() };
    assert_limit(&bytes, &limits(bytes.len()), &limits(bytes.len() - 1), "bytes of envelope");
}

#[test]
fn s16_bytes_of_a_payload_count_decoded() {
    let limits = |payload_bytes| Limits { payload_bytes, ..Limits::default() };
    for content_type in ["application/json", "text/plain"] {
        let bytes = encode(&message(content_type, "12345"));
        assert_limit(&bytes, &limits(5), &limits(4), "bytes of payload");
    }
}

#[test]
fn s16_the_default_limits_let_the_largest_message_through() {
    let limits = Limits::default();
    let mut largest = message("application/octet-stream", vec![0xff; limits.payload_bytes]);
    for index in 0..HEADERS_MAX {
        let value = "\"".repeat(HEADER_BYTES_MAX / HEADERS_MAX - 2);
        largest.headers.insert(format!("{index:02}"), value).expect("within the limit");
    }
    assert_eq!(wire::parse(&encode(&largest), &limits).expect("within every limit").message, largest);
    let larger = message("application/octet-stream", vec![0xff; limits.payload_bytes + 1]);
    assert!(wire::parse(&encode(&larger), &limits).is_err());
}

#[test]
fn s16_depth() {
    let limits = |depth| Limits { depth, ..Limits::default() };
    // The envelope is the first level; the headers make the second, if the payload does not.
    assert_limit(&encode(&nested(9)), &limits(10), &limits(9), "depth of envelope");
    assert_limit(&encode(&message("text/plain", "[[[")), &limits(2), &limits(1), "depth of envelope");
    // Our own drafts avoid such depths, so a hostile sender is played by hand.
    let template = String::from_utf8(encode(&nested(2))).unwrap();
    let hostile = |depth| template.replace("[[]]", &("[".repeat(depth) + &"]".repeat(depth)));
    let parse = |text: String| wire::parse(text.as_bytes(), &Limits::default());
    parse(hostile(DEPTH_MAX - 1)).expect("within the limit");
    assert!(parse(hostile(DEPTH_MAX)).unwrap_err().to_string().contains("depth"));
    assert!(parse(hostile(100_000)).is_err());
}

#[test]
fn s16_headers() {
    let mut with_header = message("application/json", "1");
    with_header.headers.insert("a", "bc").expect("legal");
    let bytes = encode(&with_header);
    let envelope = wire::Envelope::read(&bytes, &Limits::default()).expect("an envelope");
    let count = envelope.headers.len();
    let total = envelope.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
    let limits = |headers| Limits { headers, ..Limits::default() };
    assert_limit(&bytes, &limits(count), &limits(count - 1), "members of headers");
    let limits = |header_bytes| Limits { header_bytes, ..Limits::default() };
    assert_limit(&bytes, &limits(total), &limits(total - 1), "bytes of headers");
}

#[test]
fn s16_batches() {
    let envelope = String::from_utf8(encode(&message("application/json", "1"))).unwrap();
    let batch = format!("[{envelope},{envelope}]");
    let parse = |limits: &Limits| wire::parse_batch(batch.as_bytes(), limits);
    assert_eq!(parse(&Limits { batch_items: 2, ..Limits::default() }).unwrap().len(), 2);
    assert!(parse(&Limits { batch_items: 1, ..Limits::default() }).is_err());
    assert!(parse(&Limits { batch_bytes: batch.len(), ..Limits::default() }).is_ok());
    assert!(parse(&Limits { batch_bytes: batch.len() - 1, ..Limits::default() }).is_err());
    let one_too_large = parse(&Limits { envelope_bytes: envelope.len() - 1, ..Limits::default() }).unwrap();
    assert!(one_too_large.iter().all(Result::is_err));
}
