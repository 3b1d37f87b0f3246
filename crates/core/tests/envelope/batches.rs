//! Batches are signed and verified together, and each of their messages as if it were alone.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use twobox_core::ports::Link;
use twobox_core::signing::{FRESHNESS, Key, Keyring, Keyrings, Refused, sign, sign_each};
use twobox_core::wire::{self, Asked, Asker, Draft, Limits, Parsed};
use twobox_core::{Destination, Message, Payload, Source, Timestamp};

use crate::generate::{NOW, encode_signed, key, keyrings, message, messages};
use crate::signing::CHANGES;

/// What a receiver reads of a batch that its sender has signed.
fn arrived(batch: &[Arc<Message>], key: &Key) -> Vec<Parsed> {
    let link = Link {
        source: batch[0].source.clone(),
        destination: Destination::new("billing").expect("legal"),
        outbox: "outbox-1".into(),
    };
    let (_, body) = Asked::encode(&link, batch, NOW, Some(key));
    let items = wire::parse_batch(&body, &Limits::default()).expect("what we write, we read");
    items.into_iter().map(|item| item.expect("and each item of it")).collect()
}

/// Messages of one sender.
fn batches() -> impl Strategy<Value = Vec<Arc<Message>>> {
    vec(messages(), 1..20).prop_map(|mut batch| {
        let source = batch[0].source.clone();
        batch.iter_mut().for_each(|message| message.source = source.clone());
        batch.into_iter().map(Arc::new).collect()
    })
}

proptest! {
    #[test]
    fn s11_a_batch_is_signed_as_each_of_its_messages(batch in batches()) {
        let key = key("k", 1);
        let drafts: Vec<Draft<'_>> = batch.iter().map(|message| Draft::new(message)).collect();
        let alone: Vec<_> = drafts.iter().map(|draft| sign(&key, &draft.signed(NOW, "outbox-1"))).collect();
        prop_assert_eq!(&sign_each(&key, &Draft::signed_each(&drafts, NOW, "outbox-1")), &alone);
        for (parsed, message) in arrived(&batch, &key).into_iter().zip(&batch) {
            let one = wire::parse(&encode_signed(message, NOW, &key), &Limits::default()).unwrap();
            prop_assert_eq!(parsed.message.payload.sha256(), message.payload.sha256());
            prop_assert_eq!(parsed, one);
        }
    }

    #[test]
    fn s11_a_batch_with_one_changed_field_is_refused(
        batch in batches(),
        at: prop::sample::Index,
        change in 0..CHANGES.len(),
    ) {
        let keyrings = keyrings(&batch[0].source, [key("k", 1), key("other", 2)]);
        let honest = arrived(&batch, &key("k", 1));
        prop_assert!(Asker::of(&keyrings, &honest, NOW).is_ok());
        let (mut changed, at) = (honest.clone(), at.index(batch.len()));
        CHANGES[change](&mut changed[at]);
        prop_assume!(changed != honest);
        prop_assert_eq!(Asker::of(&keyrings, &changed, NOW).unwrap_err(), Refused::Unauthentic);
    }
}

/// A batch of messages that were signed one by one.
fn together(parts: impl IntoIterator<Item = (Arc<Message>, Timestamp, Key)>) -> Vec<Parsed> {
    let one = |(message, sent, key): (Arc<Message>, Timestamp, Key)| {
        wire::parse(&encode_signed(&message, sent, &key), &Limits::default()).expect("what we write, we read")
    };
    parts.into_iter().map(one).collect()
}

fn refused(keyrings: &Keyrings, batch: &[Parsed]) -> Refused {
    Asker::of(keyrings, batch, NOW).expect_err("it must not be believed")
}

/// Of a shop and of a bank, whose key is `bank`.
fn two_senders() -> (Keyrings, [Arc<Message>; 2]) {
    let (shop, bank) = (message("application/json", "1"), Source::new("bank").expect("legal"));
    let mut keyrings = keyrings(&shop.source, [key("shop", 1), key("shop-2", 3)]);
    let ring = Keyring::new([key("bank", 2)]).expect("legal");
    keyrings.insert(&bank, ring).expect("a key of its own");
    let of_bank = Message { source: bank, ..shop.clone() };
    (keyrings, [shop, of_bank].map(Arc::new))
}

#[test]
fn s11_whoever_names_anothers_key_behind_its_own_is_refused() {
    let (keyrings, [shop, bank]) = two_senders();
    let own = together([(bank, NOW, key("bank", 2))]);
    let mut forged = together([(shop, NOW, key("bank", 2))]);
    // Made with the bank's key, as the batch's first one; it only says that it is the shop's.
    forged[0].signature.as_mut().unwrap().key_id = key("shop", 1).id().clone();
    assert_eq!(refused(&keyrings, &[own, forged].concat()), Refused::Unauthentic);
}

#[test]
fn s11_whoever_speaks_for_another_behind_a_message_of_its_own_is_refused() {
    let (keyrings, [shop, bank]) = two_senders();
    let batch = together([shop, bank].map(|message| (message, NOW, key("shop", 1))));
    assert!(Asker::of(&keyrings, &batch[..1], NOW).is_ok());
    assert_eq!(refused(&keyrings, &batch), Refused::Unauthentic);
}

#[test]
fn s11_a_recorded_message_behind_a_fresh_one_is_stale() {
    let (keyrings, [shop, _]) = two_senders();
    let old = NOW.minus(FRESHNESS).minus(Duration::from_micros(1));
    let batch = together([NOW, old].map(|sent| (Arc::clone(&shop), sent, key("shop", 1))));
    assert_eq!(refused(&keyrings, &batch), Refused::Stale);
}

#[test]
fn s11_a_batch_is_signed_with_one_key() {
    let (keyrings, [shop, bank]) = two_senders();
    let by = |id, secret| (Arc::clone(&shop), NOW, key(id, secret));
    assert_eq!(refused(&keyrings, &together([by("shop", 1), by("shop-2", 3)])), Refused::MixedKeys);
    let of_others = together([by("shop", 1), (bank, NOW, key("bank", 2))]);
    assert_eq!(refused(&keyrings, &of_others), Refused::MixedKeys);
    let one_is_forged = together([by("shop", 1), by("shop-2", 3), by("shop-2", 4)]);
    assert_eq!(refused(&keyrings, &one_is_forged), Refused::Unauthentic, "that goes first");
    let mut unsigned = together([by("shop", 1), by("shop", 1)]);
    unsigned[1].signature = None;
    assert_eq!(refused(&keyrings, &unsigned), Refused::Unauthentic);
    assert_eq!(refused(&keyrings, &[]), Refused::Unauthentic);
    assert_eq!(keyrings.verify_each(&[], NOW), Err(Refused::Unauthentic));
}

#[test]
fn s11_batches_under_unknown_keys_and_keys_out_of_their_time_are_refused() {
    let shop = Arc::new(message("application/json", "1"));
    let batch =
        |key: Key| together([&shop, &shop, &shop].map(|message| (Arc::clone(message), NOW, key.clone())));
    let over = key("over", 1).not_after(NOW.minus(Duration::from_micros(1)));
    let keyrings = keyrings(&shop.source, [key("shop", 1), over.clone()]);
    assert!(Asker::of(&keyrings, &batch(key("shop", 1)), NOW).is_ok());
    // The key that stands in for unknown ones opens nothing.
    for key in [key("unknown", 0), key("unknown", 1), key("shop", 2), over] {
        assert_eq!(refused(&keyrings, &batch(key)), Refused::Unauthentic);
    }
}

#[test]
fn rf_09_bad_items_of_a_batch_leave_the_hashes_of_the_others_where_they_belong() {
    let deep = "[".repeat(80) + &"]".repeat(80);
    let payloads =
        [("application/json", "1"), ("text/plain", "two"), ("application/json", "null"), ("text/plain", "")];
    let good = payloads.map(|(content_type, payload)| {
        String::from_utf8(encode_signed(&message(content_type, payload), NOW, &key("k", 1))).unwrap()
    });
    let bad = [String::from("{}"), good[0].replace("\"payload\":1", &format!("\"payload\":{deep}"))];
    for bad in bad {
        let items = good.iter().flat_map(|good| [bad.clone(), good.clone()]).collect::<Vec<_>>().join(",");
        let parsed = wire::parse_batch(format!("[{items}]").as_bytes(), &Limits::default()).unwrap();
        for (pair, good) in parsed.as_chunks::<2>().0.iter().zip(&good) {
            let [bad, item] = pair;
            let alone = wire::parse(good.as_bytes(), &Limits::default()).unwrap();
            let item = item.as_ref().unwrap();
            assert!(bad.is_err());
            assert_eq!(*item, alone);
            assert_eq!(
                item.message.payload.sha256(),
                Payload::new(alone.message.payload.as_bytes().to_vec()).sha256()
            );
        }
    }
}
