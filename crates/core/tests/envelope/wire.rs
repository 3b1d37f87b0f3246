//! Round trips, and input that nobody meant well.

use proptest::collection::vec;
use proptest::prelude::*;
use twobox_core::wire::{self, Batch, Draft, Limits, Stamp};

use crate::generate::{self, encode, encode_signed, key, messages, time};

/// One way to spoil bytes: cut out, repeat or overwrite.
fn mutate(bytes: &mut Vec<u8>, kind: u8, at: usize, length: usize, byte: u8) {
    let start = at % bytes.len();
    let end = (start + length).min(bytes.len());
    match kind {
        0 => drop(bytes.drain(start..end)),
        1 => {
            let copy = bytes[start..end].to_vec();
            bytes.splice(start..start, copy);
        }
        2 => bytes[start] = byte,
        _ => bytes[start] ^= 1 << (byte % 8),
    }
    if bytes.is_empty() {
        bytes.push(byte);
    }
}

proptest! {
    #[test]
    fn rf_09_every_message_comes_back(message in messages(), sent in time(), outbox in "[0-9:,é\"]{0,9}") {
        let draft = Draft::new(&message);
        let signature = twobox_core::signing::sign(&key("k", 1), &draft.signed(sent, &outbox));
        let bytes = draft.encode(&Stamp { sent, outbox: &outbox, signature: Some(&signature) });
        let parsed = wire::parse(&bytes, &Limits::default()).expect("what we write, we read");
        prop_assert_eq!(&parsed.message, &message);
        prop_assert_eq!(parsed.sent, sent);
        prop_assert_eq!(&*parsed.outbox, &outbox);
        prop_assert_eq!(parsed.encoding, draft.encoding());
        prop_assert_eq!(parsed.payload_sha256, draft.payload_sha256());
        prop_assert_eq!(parsed.signature, Some(signature));
        prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok());
    }

    #[test]
    fn rf_09_batches_come_back_in_order(messages in vec(messages(), 0..6)) {
        let mut batch = Batch::new();
        for message in &messages {
            batch.push(&Draft::new(message), &Stamp { sent: generate::NOW, outbox: "o", signature: None });
        }
        prop_assert_eq!(batch.len(), messages.len());
        let parsed = wire::parse_batch(&batch.into_bytes(), &Limits::default()).expect("an array");
        let parsed: Vec<_> = parsed.into_iter().map(|item| item.expect("an envelope").message).collect();
        prop_assert_eq!(parsed, messages);
    }

    #[test]
    fn s16_arbitrary_bytes_are_refused_without_a_panic(bytes in vec(any::<u8>(), 0..256)) {
        prop_assert!(wire::parse(&bytes, &Limits::default()).is_err());
        let _ = wire::parse_batch(&bytes, &Limits::default());
    }

    #[test]
    fn s16_arbitrary_json_like_text_is_refused_without_a_panic(text in "[\\[\\]{}\":,0-9a-e\\\\. \n-]{0,64}") {
        prop_assert!(wire::parse(text.as_bytes(), &Limits::default()).is_err());
        let _ = wire::parse_batch(text.as_bytes(), &Limits::default());
    }

    #[test]
    fn s11_spoilt_envelopes_never_panic_and_never_pass_for_another_message(
        message in messages(),
        spoils in vec((0..4_u8, any::<usize>(), 1..40_usize, any::<u8>()), 1..4),
    ) {
        let keyrings = generate::keyrings(&message.source, [key("k", 1)]);
        let mut bytes = encode_signed(&message, generate::NOW, &key("k", 1));
        for (kind, at, length, byte) in spoils {
            mutate(&mut bytes, kind, at, length, byte);
        }
        if let Ok(parsed) = wire::parse(&bytes, &Limits::default())
            && parsed.verify(&keyrings, generate::NOW).is_ok()
        {
            prop_assert_eq!(parsed.message, message);
        }
    }

    #[test]
    fn s17_errors_never_quote_the_payload(at in any::<usize>(), kind in 0..4_u8, length in 1..40_usize) {
        let mut bytes = encode(&generate::message("application/json", *br#"{"card":"canary"}"#));
        mutate(&mut bytes, kind, at, length, b'7');
        if let Err(error) = wire::parse(&bytes, &Limits::default()) {
            let shown = format!("{error:?} {}", error.chain());
            prop_assert!(!shown.contains("canary"), "{}", shown);
        }
    }
}
