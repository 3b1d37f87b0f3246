//! Parts of requests as types, refused in our own shape.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use twobox_core::ports::ops::{PAGE_MAX, PageToken};
use twobox_core::wire::{DEPTH_MAX, is_deeper};
use twobox_core::{Error, Timestamp};

use super::guard::Actor;
use super::refusal::{Code, Refusal};

/// The length of a page unless something else is asked for.
const PAGE: usize = 100;

/// The query of a request.
pub(super) struct Query<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        if !is_text(parts.uri.query().unwrap_or_default()) {
            return Err(Code::Malformed.because("the query is not UTF-8"));
        }
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(query)| Self(query))
            .map_err(|error| Code::Malformed.because(error.body_text()))
    }
}

/// Whether what is percent-encoded is UTF-8.
fn is_text(query: &str) -> bool {
    let (mut bytes, mut rest) = (Vec::with_capacity(query.len()), query.as_bytes());
    while let [byte, tail @ ..] = rest {
        let escaped = (*byte == b'%').then(|| tail.get(..2)).flatten();
        let escaped =
            escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    std::str::from_utf8(&bytes).is_ok()
}

/// What stands in the path.
pub(super) struct Path<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        axum::extract::Path::from_request_parts(parts, state)
            .await
            .map(|axum::extract::Path(path)| Self(path))
            .map_err(|error| Code::Malformed.because(error.body_text()))
    }
}

/// The body of a request. One that is left out counts as an empty object.
pub(super) struct Json<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let bytes = axum::body::Bytes::from_request(request, state)
            .await
            .map_err(|error| Code::Malformed.because(error.body_text()))?;
        parse(if bytes.is_empty() { b"{}" } else { &bytes }).map(Self)
    }
}

/// Whether JSON is a list.
pub(super) fn is_list(json: &[u8]) -> bool {
    json.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// Reads JSON: what is none is malformed, what is something else than expected is invalid.
pub(super) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, Refusal> {
    if is_deeper(json, DEPTH_MAX + usize::from(is_list(json))) {
        return Err(Code::Malformed.because(format!("the body is nested deeper than {DEPTH_MAX} levels")));
    }
    serde_json::from_slice(json).map_err(|error| {
        let code = if error.is_data() { Code::Invalid } else { Code::Malformed };
        code.because(format!("the body: {}", without_value(&error.to_string())))
    })
}

/// The text of an error without the value that it is about: that may be a payload (S17).
fn without_value(text: &str) -> &str {
    let shows_value = text.starts_with("invalid type: ") || text.starts_with("invalid value: ");
    let expected = text.rfind(", expected ").filter(|_| shows_value);
    expected.map_or(text, |at| &text[at + 2..])
}

impl<S: Sync> FromRequestParts<S> for Actor {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Code::Unauthorized.because("nobody asks"))
    }
}

/// How many items are wanted.
pub(super) fn limit(asked: Option<usize>) -> Result<usize, Refusal> {
    let limit = asked.unwrap_or(PAGE);
    if (1..=PAGE_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Code::Invalid.because(format!("limit: {limit} is not from 1 to {PAGE_MAX}")))
}

/// Where a list goes on.
pub(super) fn token(next: Option<String>) -> Option<PageToken> {
    next.map(PageToken::new)
}

/// A value that may have been left out.
pub(super) fn parsed<T>(name: &str, text: Option<&str>) -> Result<Option<T>, Refusal>
where
    T: std::str::FromStr<Err = Error>,
{
    text.map(|text| required(name, text)).transpose()
}

/// A value.
pub(super) fn required<T>(name: &str, text: &str) -> Result<T, Refusal>
where
    T: std::str::FromStr<Err = Error>,
{
    text.parse().map_err(|error| Refusal::from(error).at(name))
}

/// A time that may have been left out.
pub(super) fn time(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Refusal> {
    let parse = |text| {
        Timestamp::from_rfc3339(text).ok_or_else(|| {
            Code::Invalid.because(format!("{name}: not a time in UTC such as 2026-02-14T12:00:00Z"))
        })
    };
    text.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s17_errors_about_values_do_not_show_them() {
        let error = serde_json::from_str::<u32>("\"canary\"").unwrap_err().to_string();
        assert!(error.contains("canary"), "{error}");
        assert_eq!(without_value(&error), "expected u32 at line 1 column 8");
        let odd = serde_json::from_str::<u32>("\", expected canary\"").unwrap_err().to_string();
        assert!(!without_value(&odd).contains("canary"), "{odd}");
    }

    #[test]
    fn s16_what_is_percent_encoded_is_utf_8_or_refused() {
        for good in ["", "a=b", "a=%C3%A9", "a=%zz", "a=%", "a=%4"] {
            assert!(is_text(good), "{good}");
        }
        for bad in ["a=%ff", "a=%C3", "%80=a"] {
            assert!(!is_text(bad), "{bad}");
        }
    }
}
