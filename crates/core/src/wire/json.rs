//! Reading JSON one level at a time, with limits, and with errors that quote nothing (S17).

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::limits::at_most;
use crate::{Error, ErrorKind, Result};

/// Members of an object. There are few, and names differ in length: a list is quicker than a tree.
pub(super) type Members<'a, T> = Vec<(Cow<'a, str>, T)>;

/// The members of a JSON object, at most `max`, no two of the same name.
pub(super) fn object<'a>(what: &str, text: &'a str, max: usize) -> Result<Members<'a, &'a RawValue>> {
    members(what, read(what, text, ObjectOf::new(max))?, max)
}

/// The members of a JSON object whose values are strings, at most `max`, no two of the same name.
pub(super) fn strings<'a>(what: &str, text: &'a str, max: usize) -> Result<Members<'a, Cow<'a, str>>> {
    let is_object = text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{');
    let blamed = if is_object { "header value" } else { what };
    let object: Object<'a, Text<'a>> = read(blamed, text, ObjectOf::new(max))?;
    let members = members(what, object, max)?;
    Ok(members.into_iter().map(|(name, Text(value))| (name, value)).collect())
}

fn members<'a, T>(what: &str, object: Object<'a, T>, max: usize) -> Result<Members<'a, T>> {
    if object.found > max {
        at_most(&format!("members of {what}"), object.found, max)?;
    }
    if repeats(&object.members) {
        return Err(Error::invalid(format!("{what} has two members of the same name")));
    }
    Ok(object.members)
}

/// Whether two members have the same name.
pub(super) fn repeats<T>(members: &Members<'_, T>) -> bool {
    (1..members.len()).any(|at| members[..at].iter().any(|(name, _)| *name == members[at].0))
}

/// The value of a member.
pub(super) fn get<'m, T>(members: &'m Members<'_, T>, name: &str) -> Option<&'m T> {
    members.iter().find(|(of, _)| of == name).map(|(_, value)| value)
}

/// The items of a JSON array, at most `max`.
pub(super) fn array<'a>(what: &str, text: &'a str, max: usize) -> Result<Vec<&'a RawValue>> {
    let array = read(what, text, ArrayOf { max })?;
    if array.found > max {
        at_most(&format!("items of {what}"), array.found, max)?;
    }
    Ok(array.items)
}

/// The text of a JSON string.
pub(super) fn text<'a>(what: &str, json: &'a str) -> Result<Cow<'a, str>> {
    serde_json::from_str(json).map(|Text(text)| text).map_err(|error| undecodable(what, &error))
}

fn read<'a, S: DeserializeSeed<'a>>(what: &str, text: &'a str, seed: S) -> Result<S::Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    seed.deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| undecodable(what, &error))
}

/// Says what kind and where, but does not keep the cause: "invalid type: string …" quotes what it met.
fn undecodable(what: &str, error: &serde_json::Error) -> Error {
    let text = if error.is_data() {
        format!("{what} is of another JSON type than it should be")
    } else {
        format!("{what} is not JSON at line {} column {}", error.line(), error.column())
    };
    Error::new(ErrorKind::Undecodable, text)
}

/// Borrows from the input unless there are escapes in it.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Both readers keep up to `max` and only count the rest, so that what is kept cannot outgrow its limit.
struct ObjectOf<T> {
    max: usize,
    values: PhantomData<T>,
}

impl<T> ObjectOf<T> {
    fn new(max: usize) -> Self {
        Self { max, values: PhantomData }
    }
}

struct Object<'a, T> {
    members: Members<'a, T>,
    found: usize,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for ObjectOf<T> {
    type Value = Object<'de, T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectOf<T> {
    type Value = Object<'de, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut object = Object { members: Vec::with_capacity(16), found: 0 };
        while let Some(Text(name)) = map.next_key()? {
            object.found += 1;
            if object.found > self.max {
                map.next_value::<IgnoredAny>()?;
            } else {
                object.members.push((name, map.next_value()?));
            }
        }
        Ok(object)
    }
}

struct ArrayOf {
    max: usize,
}

#[derive(Default)]
struct Array<'a> {
    items: Vec<&'a RawValue>,
    found: usize,
}

impl<'de> DeserializeSeed<'de> for ArrayOf {
    type Value = Array<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ArrayOf {
    type Value = Array<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut array = Array::default();
        while array.items.len() < self.max {
            let Some(item) = seq.next_element()? else { return Ok(array) };
            array.items.push(item);
            array.found += 1;
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            array.found += 1;
        }
        Ok(array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_unescaped() {
        let error = object("envelope", r#"{"a":1,"\u0061":2}"#, 9).unwrap_err();
        assert_eq!(error.to_string(), "envelope has two members of the same name");
    }

    #[test]
    fn s16_the_limit_itself_is_allowed() {
        assert_eq!(object("o", r#"{"a":1,"b":2}"#, 2).unwrap().len(), 2);
        assert!(object("o", r#"{"a":1,"b":2}"#, 1).is_err());
        assert_eq!(array("a", "[1,2]", 2).unwrap().len(), 2);
        assert_eq!(array("a", "[1,2]", 1).unwrap_err().to_string(), "items of a: 2 exceeds the limit of 1");
        assert!(array("a", "[]", 0).unwrap().is_empty());
    }

    #[test]
    fn s17_errors_quote_nothing() {
        let error = text("endpoint", r#"["canary"]"#).unwrap_err();
        assert_eq!(error.chain(), "endpoint is of another JSON type than it should be");
        assert!(!object("headers", r#""canary""#, 1).unwrap_err().chain().contains("canary"));
        assert!(!array("batch", r#"["canary""#, 1).unwrap_err().chain().contains("canary"));
    }
}
