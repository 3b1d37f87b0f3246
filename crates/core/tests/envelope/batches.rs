//! Batches are signed and verified together, and each of their messages as if it were alone.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use twobox_core::ports::Link;
use twobox_core::signing::{Key, Keyring, Keyrings, Refused, sign, sign_each};
use twobox_core::wire::{self, Asked, Asker, Draft, Limits, Parsed};
use twobox_core::{Destination, Message, Source};

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
    let own = arrived(&[bank], &key("bank", 2));
    let mut forged = arrived(&[shop], &key("bank", 2));
    // Made with the bank's key, as the batch's first one; it only says that it is the shop's.
    forged[0].signature.as_mut().unwrap().key_id = key("shop", 1).id().clone();
    let batch = [own, forged].concat();
    assert_eq!(Asker::of(&keyrings, &batch, NOW).unwrap_err(), Refused::Unauthentic);
}

#[test]
fn s11_a_batch_is_signed_with_one_key() {
    let (keyrings, [shop, bank]) = two_senders();
    let [one, two] = [key("shop", 1), key("shop-2", 3)].map(|key| arrived(&[Arc::clone(&shop)], &key));
    let mixed = [one.clone(), two].concat();
    assert_eq!(Asker::of(&keyrings, &mixed, NOW).unwrap_err(), Refused::MixedKeys);
    let of_others = [one.clone(), arrived(&[bank], &key("bank", 2))].concat();
    assert_eq!(Asker::of(&keyrings, &of_others, NOW).unwrap_err(), Refused::MixedKeys);
    let mut unsigned = [one.clone(), one].concat();
    unsigned[1].signature = None;
    assert_eq!(Asker::of(&keyrings, &unsigned, NOW).unwrap_err(), Refused::Unauthentic);
    assert_eq!(Asker::of(&keyrings, &[], NOW).unwrap_err(), Refused::Unauthentic);
}
