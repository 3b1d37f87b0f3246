//! Probes: an empty batch has no envelope that could say who asks, so the head of the request does.

use super::payload::check_label;
use super::{header, instant};
use crate::ports::Link;
use crate::signing::{KeyId, Keyrings, Mac, Refused, Signature, SignedProbe};
use crate::{Destination, Error, Result, Source, Timestamp};

/// A probe as it arrived. Nothing in it is authentic before [`verify`](Self::verify) says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Who asks whom.
    pub link: Link,
    /// When it was sent.
    pub sent: Timestamp,
    /// Its signature.
    pub signature: Signature,
}

impl Probe {
    /// The headers of the request that carry a signed probe.
    #[must_use]
    pub fn headers(&self) -> [(&'static str, String); 6] {
        [
            (header::SOURCE, escape(self.link.source.as_str())),
            (header::DESTINATION, escape(self.link.destination.as_str())),
            (header::OUTBOX, escape(&self.link.outbox)),
            (header::TIMESTAMP, instant::format(self.sent)),
            (header::KEY_ID, self.signature.key_id.to_string()),
            (header::HMAC, self.signature.mac.to_base64()),
        ]
    }

    /// Reads what [`headers`](Self::headers) wrote.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if one is missing or cannot be what it should be.
    pub fn read<'a>(value: impl Fn(&str) -> Option<&'a str>) -> Result<Self> {
        let required =
            |name: &str| value(name).ok_or_else(|| Error::invalid(format!("the probe has no header {name}")));
        let named = |name| unescape(required(name)?).ok_or_else(|| illegal(name));
        let outbox = named(header::OUTBOX)?;
        check_label("outbox instance", &outbox)?;
        let link = Link {
            source: Source::new(named(header::SOURCE)?)?,
            destination: Destination::new(named(header::DESTINATION)?)?,
            outbox,
        };
        let sent = instant::parse(required(header::TIMESTAMP)?).ok_or_else(|| illegal(header::TIMESTAMP))?;
        let key_id = KeyId::new(required(header::KEY_ID)?)?;
        let mac = Mac::from_base64(required(header::HMAC)?).ok_or_else(|| illegal(header::HMAC))?;
        Ok(Self { link, sent, signature: Signature { key_id, mac } })
    }

    /// Verifies the signature at `now` and returns the source; see [`Keyrings::verify`].
    ///
    /// # Errors
    /// [`Refused`].
    pub fn verify(&self, keyrings: &Keyrings, now: Timestamp) -> Result<Source, Refused> {
        keyrings.verify_probe(&SignedProbe { link: &self.link, sent: self.sent }, &self.signature, now)
    }
}

fn illegal(name: &str) -> Error {
    Error::invalid(format!("{name} of the probe cannot be read"))
}

/// Names may be any text, which the head of a request may not: everything but `A-Z a-z 0-9 - . _` becomes `%XX`.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit =
                || char::from(rest.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            bytes.push(digit()? << 4 | digit()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signing::{Key, SecretKey, sign_probe};

    fn probe() -> Probe {
        let link = Link {
            source: Source::new("büro 1%").unwrap(),
            destination: Destination::new("billing").unwrap(),
            outbox: String::new(),
        };
        let key = Key::new(KeyId::new("k").unwrap(), SecretKey::new(&[7; 32]).unwrap());
        let sent = Timestamp::from_micros(1_771_070_401_234_567);
        let signature = sign_probe(&key, &SignedProbe { link: &link, sent });
        Probe { link, sent, signature }
    }

    #[test]
    fn l3_a_probe_survives_the_head_of_a_request() {
        let headers = probe().headers();
        assert!(headers.iter().all(|(_, value)| value.bytes().all(|byte| byte.is_ascii_graphic())));
        let value = |name: &str| headers.iter().find(|(of, _)| *of == name).map(|(_, value)| value.as_str());
        assert_eq!(Probe::read(value).unwrap(), probe());
        for (missing, _) in &headers {
            assert!(Probe::read(|name| value(name).filter(|_| name != *missing)).is_err(), "{missing}");
        }
    }

    #[test]
    fn s16_broken_escapes_are_refused() {
        for text in ["%", "%4", "%4g", "%FF", "%C3%28"] {
            assert_eq!(unescape(text), None, "{text}");
        }
        assert_eq!(unescape("a%2Fb").as_deref(), Some("a/b"));
    }
}
