//! Envelopes and batches: within their limits, and what is read can be written and read again.

use twobox_core::message::{HEADER_BYTES_MAX, HEADERS_MAX};
use twobox_core::wire::{self, Batch, Draft, Encoding, Limits, Parsed, Stamp};
use twobox_core::{BoxError, Destination, Error, ErrorKind};

use super::feed::Feed;
use super::post::{self, NOW};
use super::{Check, edit, ensure};

struct Envelopes {
    /// Honest envelopes, and all of them as a batch.
    envelopes: Vec<Vec<u8>>,
    batch: Vec<u8>,
    key: twobox_core::signing::Key,
    receiver: Destination,
    usual: Limits,
    narrow: Limits,
}

pub(super) fn open() -> Result<Check, BoxError> {
    let (key, messages) = (post::shop_key()?, post::usual()?);
    let world = Envelopes {
        envelopes: messages.iter().map(|message| post::envelope(&key, message)).collect(),
        batch: post::batch(&key, &messages),
        key,
        receiver: Destination::new("billing")?,
        usual: Limits::default(),
        // Small enough for inputs of a usual size to meet every one of them.
        narrow: Limits {
            envelope_bytes: 1024,
            batch_bytes: 2000,
            batch_items: 2,
            payload_bytes: 24,
            depth: 4,
            headers: 14,
            header_bytes: 400,
        },
    };
    Ok(Box::new(move |input| world.check(input)))
}

pub(super) fn seeds() -> Result<Vec<Vec<u8>>, BoxError> {
    let (key, messages) = (post::shop_key()?, post::usual()?);
    let mut seeds = vec![vec![2], vec![3], vec![6], vec![7], vec![2, 3], vec![10]];
    for message in &messages {
        seeds.push([&[0], &*post::envelope(&key, message)].concat());
        seeds.push([&[8], &*post::envelope(&key, message)].concat());
    }
    seeds.push([&[1], &*post::batch(&key, &messages)].concat());
    seeds.push([&[4], &*post::envelope(&key, &messages[0])].concat());
    seeds.push([&[5], &*post::batch(&key, &messages[..1])].concat());
    let bare = r#"{"messageId":"a","sourceServiceId":"s","messageType":"Signal","endpoint":"e","payload":"#;
    for (shape, payload) in [(8, "[[[[]]]]"), (12, "[[[]]]"), (12, "[[[[]]]]")] {
        seeds.push([&[shape], bare.as_bytes(), payload.as_bytes(), b"}"].concat());
    }
    seeds.extend((0..14).map(|of| [vec![2, 3], vec![of; 12]].concat()));
    seeds.extend([&b"\x01[]"[..], b"\x01 [ ] ", b"\x05[1,2]", b"\x05[1,[2,3],\",\"]"].map(Vec::from));
    Ok(seeds)
}

impl Envelopes {
    fn check(&self, input: &[u8]) -> Result<(), BoxError> {
        let mut feed = Feed::new(input);
        let shape = feed.below(16);
        let limits = if shape & 4 == 0 { &self.usual } else { &self.narrow };
        let one = if shape & 8 == 0 { Self::one } else { Self::plain };
        match shape % 4 {
            0 => one(self, feed.rest(), limits),
            1 => self.many(feed.rest(), limits),
            2 => {
                let mut bytes = match feed.below(4) {
                    3 => post::envelope(&self.key, &post::message(&mut feed)?),
                    at => self.envelopes[at].clone(),
                };
                edit::tamper(&mut feed, &mut bytes, &self.batch);
                one(self, &bytes, limits)
            }
            _ => {
                let mut bytes = self.batch.clone();
                edit::tamper(&mut feed, &mut bytes, &self.envelopes[1]);
                self.many(&bytes, limits)
            }
        }
    }

    /// As a signing sender's.
    fn one(&self, bytes: &[u8], limits: &Limits) -> Result<(), BoxError> {
        let parsed = match wire::parse(bytes, limits) {
            Err(error) => return refused(&error),
            Ok(parsed) => parsed,
        };
        within_size(bytes, limits)?;
        within(&parsed, limits)?;
        again(&parsed)
    }

    /// As that of a sender who leaves things out; and what is complete means the same in every way of reading it.
    fn plain(&self, bytes: &[u8], limits: &Limits) -> Result<(), BoxError> {
        let plain = match wire::parse_plain(bytes, limits, &self.receiver, NOW) {
            Err(error) => return refused(&error),
            Ok(plain) => plain,
        };
        within_size(bytes, limits)?;
        within(&plain, limits)?;
        match wire::parse(bytes, limits) {
            Err(_) => again(&plain),
            Ok(parsed) => {
                ensure(plain == parsed, || "completing an envelope that is complete changed it".into())?;
                alone_in_a_batch(bytes, &parsed, limits)
            }
        }
    }

    fn many(&self, bytes: &[u8], limits: &Limits) -> Result<(), BoxError> {
        let items = match wire::parse_batch(bytes, limits) {
            Err(error) => return refused(&error),
            Ok(items) => items,
        };
        let allowed = bytes.len() <= limits.batch_bytes && items.len() <= limits.batch_items;
        ensure(allowed, || format!("a batch of {} bytes and {} items was read", bytes.len(), items.len()))?;
        let count = scan(bytes).items;
        ensure(items.len() == count, || format!("{} of {count} items were read", items.len()))?;
        let mut read = Vec::new();
        for item in items {
            match item {
                Err(error) => refused(&error)?,
                Ok(parsed) => {
                    within(&parsed, limits)?;
                    read.push(parsed);
                }
            }
        }
        let written = encode_batch(&read);
        let items = wire::parse_batch(&written, &Limits::default())?;
        ensure(items.len() == read.len(), || "a batch came back with another number of items".into())?;
        for (item, parsed) in items.into_iter().zip(&read) {
            same(&item?, parsed)?;
        }
        Ok(())
    }
}

/// Input is refused for what it is, never as anybody's failure or misconfiguration.
fn refused(error: &Error) -> Result<(), BoxError> {
    let kind = error.kind();
    ensure(matches!(kind, ErrorKind::Invalid | ErrorKind::Undecodable), || {
        format!("refused as {kind:?}: {error}")
    })
}

fn within_size(bytes: &[u8], limits: &Limits) -> Result<(), BoxError> {
    ensure(bytes.len() <= limits.envelope_bytes, || "an envelope beyond its limit was read".into())?;
    let depth = scan(bytes).depth;
    ensure(depth <= limits.depth, || format!("an envelope of depth {depth} was read"))
}

fn within(parsed: &Parsed, limits: &Limits) -> Result<(), BoxError> {
    let headers = &parsed.message.headers;
    let count = headers.iter().count();
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    let payload = parsed.message.payload.len();
    ensure(payload <= limits.payload_bytes, || format!("a payload of {payload} bytes was read"))?;
    ensure(count <= limits.headers.min(HEADERS_MAX), || format!("{count} headers were read"))?;
    ensure(bytes <= limits.header_bytes.min(HEADER_BYTES_MAX), || {
        format!("{bytes} bytes of headers were read")
    })
}

/// What was read is written, read again, and the same.
fn again(parsed: &Parsed) -> Result<(), BoxError> {
    let bytes = Draft::new(&parsed.message).encode(&stamp(parsed));
    same(&wire::parse(&bytes, &Limits::default())?, parsed)
}

/// Only how the payload stands may differ: a writer chooses that anew, and with it how a text of base64 is escaped.
fn same(one: &Parsed, other: &Parsed) -> Result<(), BoxError> {
    let stands_alike = one.encoding == other.encoding && one.encoding == Encoding::Plain;
    let equal = one.message == other.message
        && (one.sent, &one.outbox, &one.signature) == (other.sent, &other.outbox, &other.signature)
        && (!stands_alike || one.payload_sha256 == other.payload_sha256);
    ensure(equal, || format!("came back as another message: {one:?} instead of {other:?}"))
}

fn alone_in_a_batch(bytes: &[u8], parsed: &Parsed, limits: &Limits) -> Result<(), BoxError> {
    let batch = [b"[", bytes, b"]"].concat();
    if batch.len() > limits.batch_bytes {
        return Ok(());
    }
    let items = wire::parse_batch(&batch, limits)?;
    let equal = items.len() == 1 && items[0].as_ref().is_ok_and(|item| item == parsed);
    ensure(equal, || "alone and in a batch an envelope means different things".into())
}

fn stamp(parsed: &Parsed) -> Stamp<'_> {
    Stamp { sent: parsed.sent, outbox: &parsed.outbox, signature: parsed.signature.as_ref() }
}

fn encode_batch(parsed: &[Parsed]) -> Vec<u8> {
    let mut batch = Batch::new();
    for parsed in parsed {
        batch.push(&Draft::new(&parsed.message), &stamp(parsed));
    }
    batch.into_bytes()
}

/// What can be seen of a JSON text without understanding it.
struct Scan {
    /// How deep brackets are nested.
    depth: usize,
    /// How many values there are directly in the outermost brackets.
    items: usize,
}

fn scan(text: &[u8]) -> Scan {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    let (mut commas, mut is_empty) = (0, true);
    for byte in text {
        is_empty &= depth == 0 || b" \t\r\n]".contains(byte);
        match (in_string, byte) {
            _ if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{') => depth += 1,
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            (false, b',') if depth == 1 => commas += 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    Scan { depth: deepest, items: if is_empty { 0 } else { commas + 1 } }
}
