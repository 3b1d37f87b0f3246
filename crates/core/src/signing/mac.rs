//! The code itself, and the code with the name of its key.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq;

use super::KeyId;

/// An HMAC-SHA256. Comparison takes the same time wherever the difference lies.
#[derive(Clone, Copy)]
pub struct Mac([u8; 32]);

impl Mac {
    /// How long it is in base64.
    const TEXT_BYTES: usize = 44;

    /// Wraps the code.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The code.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The code in base64, as `rf-hmac` carries it.
    #[must_use]
    pub fn to_base64(&self) -> String {
        self.with_base64(str::to_owned)
    }

    /// As [`to_base64`](Self::to_base64), without a text of its own.
    pub(crate) fn with_base64<T>(&self, read: impl FnOnce(&str) -> T) -> T {
        let mut text = [0; Self::TEXT_BYTES];
        let length = STANDARD.encode_slice(self.0, &mut text).expect("32 bytes are 44 in base64");
        read(str::from_utf8(&text[..length]).expect("base64 is text"))
    }

    /// Reads what [`to_base64`](Self::to_base64) wrote; `None` if it is not base64 of 32 bytes.
    #[must_use]
    pub fn from_base64(text: &str) -> Option<Self> {
        // Room for whatever a text of the right length can stand for; the decoder asks for that.
        let mut bytes = [0; Self::TEXT_BYTES / 4 * 3];
        let length = STANDARD.decode_slice(text, &mut bytes).ok()?;
        bytes[..length].try_into().ok().map(Self)
    }
}

impl ConstantTimeEq for Mac {
    fn ct_eq(&self, other: &Self) -> subtle::Choice {
        self.0.ct_eq(&other.0)
    }
}

impl PartialEq for Mac {
    fn eq(&self, other: &Self) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for Mac {}

impl fmt::Debug for Mac {
    /// Shows nothing: whoever reads a fresh code in a log could send the request again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mac(…)")
    }
}

/// A MAC and the key it was made with: what `rf-key-id` and `rf-hmac` carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The key it was made with.
    pub key_id: KeyId,
    /// The code.
    pub mac: Mac,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_strictly() {
        let mac = Mac::from_bytes([7; 32]);
        let text = mac.to_base64();
        assert_eq!(Mac::from_base64(&text), Some(mac));
        assert_eq!(Mac::from_base64(text.trim_end_matches('=')), None);
        assert_eq!(Mac::from_base64(&STANDARD.encode([7; 31])), None);
        assert_eq!(Mac::from_base64(""), None);
        // The last character carries two bits too many; accepting any of them would give one MAC four texts.
        assert_eq!(Mac::from_base64(&text.replace("c=", "d=")), None);
    }

    #[test]
    fn s17_debug_shows_no_code() {
        assert_eq!(format!("{:?}", Mac::from_bytes([7; 32])), "Mac(…)");
    }
}
