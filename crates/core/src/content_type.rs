//! The media type of a body.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::message::JSON;

/// The media type of a body, as text. Copying it allocates nothing.
///
/// Any text can be one; whoever keeps or sends a body checks it with
/// [`check_content_type`](crate::wire::check_content_type).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ContentType(Text);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Text {
    /// What nearly every body is.
    Json,
    /// Never the text of the other one, so that equal texts are equal values.
    Other(Arc<str>),
}

impl ContentType {
    /// `application/json`.
    pub const JSON: Self = Self(Text::Json);

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Json => JSON,
            Text::Other(text) => text,
        }
    }
}

impl Default for ContentType {
    fn default() -> Self {
        Self::JSON
    }
}

impl From<&str> for ContentType {
    fn from(text: &str) -> Self {
        if text == JSON { Self::JSON } else { Self(Text::Other(text.into())) }
    }
}

impl From<String> for ContentType {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl Deref for ContentType {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for ContentType {
    fn as_ref(&self) -> &str {
        self
    }
}

impl PartialEq<str> for ContentType {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for ContentType {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Debug for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_equal_types() {
        assert_eq!(ContentType::from("application/json"), ContentType::JSON);
        assert_eq!(ContentType::from("text/plain".to_owned()), ContentType::from("text/plain"));
        assert_ne!(ContentType::from("text/plain"), ContentType::JSON);
        for text in ["", "application/json", "application/json; charset=utf-8", "é"] {
            let content_type = ContentType::from(text);
            assert_eq!((content_type.as_str(), content_type.to_string()), (text, text.to_owned()));
            assert!(content_type == text && content_type == *text);
        }
    }
}
