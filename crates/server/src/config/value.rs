//! What a setting can be, and how it is written: in a file as TOML, in the environment and in flags as text.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use toml::Value;
use twobox_core::Timestamp;
use twobox_core::wire::{format_instant, parse_instant};

use super::section::Section;

/// What is wrong with a value, and where below its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Names and places that lead from the key to the culprit; empty if it is the value itself.
    pub(crate) below: Vec<String>,
    pub(crate) text: String,
}

pub(crate) type Read<T> = Result<T, Problem>;

impl Problem {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { below: Vec::new(), text: text.into() }
    }

    pub(super) fn under(mut self, name: &str) -> Self {
        self.below.insert(0, name.into());
        self
    }
}

/// A value of a setting.
pub(crate) trait Setting: Sized {
    /// From a file.
    fn read(value: &Value) -> Read<Self>;

    /// From a variable or a flag. What is no plain text is written as in a file.
    fn read_text(text: &str) -> Read<Self> {
        let table: toml::Table = format!("value = {text}").parse().map_err(|_| {
            Problem::new("is not TOML: write what would stand behind the equals sign in the file")
        })?;
        table.get("value").map_or_else(|| Err(Problem::new("is empty")), Self::read)
    }

    /// As it stands in a file.
    fn show(&self) -> Value;
}

/// Settings that are text wherever they are written.
macro_rules! text {
    ($type:ty, $parse:expr, $show:expr) => {
        impl Setting for $type {
            fn read(value: &Value) -> Read<Self> {
                let text = value.as_str().ok_or_else(|| Problem::new(kind(value, "text in quotes")))?;
                Self::read_text(text)
            }

            fn read_text(text: &str) -> Read<Self> {
                let parse: fn(&str) -> Read<Self> = $parse;
                parse(text)
            }

            fn show(&self) -> Value {
                let show: fn(&Self) -> String = $show;
                Value::String(show(self))
            }
        }
    };
}
pub(super) use text;

text!(String, |text| Ok(text.into()), Clone::clone);

text!(Option<PathBuf>, |text| Ok((!text.is_empty()).then(|| text.into())), |path| path
    .as_ref()
    .map(|path| path.display().to_string())
    .unwrap_or_default());

text!(
    Option<SocketAddr>,
    |text| {
        if text.is_empty() {
            return Ok(None);
        }
        let remedy = r#"write IP and port, as in "127.0.0.1:7400" or "[::1]:7400""#;
        text.parse().map(Some).map_err(|_| Problem::new(format!("{text:?} is no address: {remedy}")))
    },
    |address| address.map(|address| address.to_string()).unwrap_or_default()
);

impl Setting for bool {
    fn read(value: &Value) -> Read<Self> {
        value.as_bool().ok_or_else(|| Problem::new(kind(value, "true or false")))
    }

    fn show(&self) -> Value {
        Value::Boolean(*self)
    }
}

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn read(value: &Value) -> Read<Self> {
                let number = value.as_integer().ok_or_else(|| Problem::new(kind(value, "a whole number")))?;
                let most = <$type>::MAX.min(u32::MAX.try_into().unwrap_or(<$type>::MAX));
                <$type>::try_from(number)
                    .ok()
                    .filter(|number| *number <= most)
                    .ok_or_else(|| Problem::new(format!("{number} is out of range: write 0 to {most}")))
            }

            fn show(&self) -> Value {
                Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }
    )*};
}
whole_numbers!(u16, u32, usize);

impl Setting for Option<Timestamp> {
    fn read(value: &Value) -> Read<Self> {
        let text = match value {
            Value::Datetime(instant) => instant.to_string(),
            Value::String(text) if text.is_empty() => return Ok(None),
            Value::String(text) => text.clone(),
            _ => return Err(Problem::new(kind(value, "a date and time"))),
        };
        let remedy = "write it in UTC, as in 2026-12-01T00:00:00Z";
        parse_instant(&text)
            .map(Some)
            .ok_or_else(|| Problem::new(format!("{text:?} is no date and time: {remedy}")))
    }

    fn show(&self) -> Value {
        Value::String(self.map(format_instant).unwrap_or_default())
    }
}

macro_rules! lists {
    ($($type:ty),*) => {$(
        impl Setting for Vec<$type> {
            fn read(value: &Value) -> Read<Self> {
                list(value, <$type as Setting>::read)
            }

            fn show(&self) -> Value {
                Value::Array(self.iter().map(Setting::show).collect())
            }
        }
    )*};
}
lists!(String, u16);

impl<S: Section> Setting for Vec<S> {
    fn read(value: &Value) -> Read<Self> {
        list(value, S::read)
    }

    fn show(&self) -> Value {
        Value::Array(self.iter().map(S::show).collect())
    }
}

impl Setting for BTreeMap<String, String> {
    fn read(value: &Value) -> Read<Self> {
        map(value, <String as Setting>::read)
    }

    fn show(&self) -> Value {
        Value::Table(self.iter().map(|(name, value)| (name.clone(), value.show())).collect())
    }
}

impl<S: Section> Setting for BTreeMap<String, S> {
    fn read(value: &Value) -> Read<Self> {
        map(value, S::read)
    }

    fn show(&self) -> Value {
        Value::Table(self.iter().map(|(name, section)| (name.clone(), section.show())).collect())
    }
}

fn list<T>(value: &Value, read: impl Fn(&Value) -> Read<T>) -> Read<Vec<T>> {
    let values = value.as_array().ok_or_else(|| Problem::new(kind(value, "a list in brackets")))?;
    let read =
        |(place, value): (usize, &Value)| read(value).map_err(|problem| problem.under(&place.to_string()));
    values.iter().enumerate().map(read).collect()
}

fn map<T>(value: &Value, read: impl Fn(&Value) -> Read<T>) -> Read<BTreeMap<String, T>> {
    let values = value.as_table().ok_or_else(|| Problem::new(kind(value, "a table")))?;
    let read = |(name, value): (&String, &Value)| {
        read(value).map(|value| (name.clone(), value)).map_err(|problem| problem.under(name))
    };
    values.iter().map(read).collect()
}

/// Says what is there and what should be.
pub(super) fn kind(found: &Value, wanted: &str) -> String {
    let found = match found {
        Value::String(_) => "text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a fraction",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    };
    format!("is {found}: write {wanted}")
}
