//! Names, validated once at the edge.
//!
//! Every name is text of 1 to 255 characters without control characters, so that it can stand in a log
//! line, a header, a metric or a terminal without hiding anything.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use uuid::Uuid;

use crate::{Error, Result};

/// The most characters a name may have.
pub const NAME_CHARS_MAX: usize = 255;

fn check(what: &str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{what} is empty: give it 1 to {NAME_CHARS_MAX} characters")));
    }
    // Nearly every name is short and plain.
    if text.len() <= NAME_CHARS_MAX && text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_control()) {
        return Ok(());
    }
    let chars = text.chars().count();
    if chars > NAME_CHARS_MAX {
        return Err(Error::invalid(format!("{what} has {chars} characters, more than {NAME_CHARS_MAX}")));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{what} contains a control character")));
    }
    Ok(())
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            #[doc = concat!("Checks and wraps ", $what, ".")]
            ///
            /// # Errors
            /// [`Invalid`](crate::ErrorKind::Invalid) if it is empty, longer than [`NAME_CHARS_MAX`]
            /// characters or contains a control character.
            pub fn new(text: impl AsRef<str>) -> Result<Self> {
                let text = text.as_ref();
                check($what, text)?;
                Ok(Self(text.into()))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }
        impl TryFrom<&str> for $name {
            type Error = Error;
            fn try_from(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }
        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                Self::new(text)
            }
        }
        impl TryFrom<&$name> for $name {
            type Error = Error;
            fn try_from(name: &$name) -> Result<Self> {
                Ok(name.clone())
            }
        }
    )*};
}

names! {
    /// Identifies a message within its source. Ours are UUIDv7 and sort by time; foreign ones are what they are.
    MessageId = "message id";
    /// The service a message comes from.
    Source = "source";
    /// The service a message goes to.
    Destination = "destination";
    /// What is called at the destination: the name a handler is registered under (the *topic* of a queue).
    Endpoint = "endpoint";
    /// Who handles: part of the dedup key, explicit and stable, never derived from a type (S3).
    Consumer = "consumer";
    /// Messages with the same key are handled one after another, in order (S12).
    OrderingKey = "ordering key";
    /// Links a response to the message it answers.
    CorrelationId = "correlation id";
    /// A key under which a message is enqueued at most once (L8).
    OnceKey = "once key";
}

impl MessageId {
    /// The id as the usual lower-case hyphenated text.
    #[must_use]
    pub fn from_uuid(uuid: Uuid) -> Self {
        let mut buffer = Uuid::encode_buffer();
        Self(Arc::from(&*uuid.hyphenated().encode_lower(&mut buffer)))
    }
}

impl From<&Source> for Destination {
    /// A service is reached under the name it sends under.
    fn from(source: &Source) -> Self {
        Self(Arc::clone(&source.0))
    }
}

impl From<&Source> for Consumer {
    /// The default consumer of a service is the service itself.
    fn from(source: &Source) -> Self {
        Self(Arc::clone(&source.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_counted_in_characters() {
        assert!(Source::new("é".repeat(255)).is_ok());
        assert!(Source::new("é".repeat(256)).is_err());
        assert!(Source::new("").is_err());
        assert!(Source::new("a\nb").is_err());
    }

    /// What C# calls null cannot be written; what is empty or too long is refused with the name of what it is.
    #[test]
    fn ibx_009_ibx_010_ibx_015_ibx_016_ibx_017_empty_names_are_refused() {
        let empty = [
            ("message id", MessageId::new("").unwrap_err()),
            ("source", Source::new("").unwrap_err()),
            ("endpoint", Endpoint::new("").unwrap_err()),
        ];
        for (what, error) in empty {
            assert_eq!(error.kind(), crate::ErrorKind::Invalid);
            assert_eq!(error.to_string(), format!("{what} is empty: give it 1 to 255 characters"));
        }
    }

    #[test]
    fn ibx_011_ibx_012_ibx_020_names_have_at_most_255_characters() {
        let (fits, long) = ("x".repeat(255), "x".repeat(256));
        assert!(MessageId::new(&fits).is_ok() && Source::new(&fits).is_ok() && Endpoint::new(&fits).is_ok());
        let refused = [
            ("message id", MessageId::new(&long).unwrap_err()),
            ("source", Source::new(&long).unwrap_err()),
            ("endpoint", Endpoint::new(&long).unwrap_err()),
        ];
        for (what, error) in refused {
            assert_eq!(error.to_string(), format!("{what} has 256 characters, more than 255"));
        }
    }

    #[test]
    fn the_error_names_what_is_wrong() {
        let error = Endpoint::new("").unwrap_err();
        assert_eq!(error.to_string(), "endpoint is empty: give it 1 to 255 characters");
    }
}
