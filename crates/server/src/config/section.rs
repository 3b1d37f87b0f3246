//! Groups of settings, with what can be said about each: its name, how it is set and shown.

use toml::{Table, Value};

use super::nearest::nearest;
use super::value::{Problem, Read, kind};

/// One setting of a group.
pub(crate) struct Key<S: 'static> {
    pub(crate) name: &'static str,
    pub(crate) set: fn(&mut S, &Given<'_>) -> Read<()>,
    pub(crate) show: fn(&S) -> Value,
}

/// What a setting is set to.
pub(crate) enum Given<'a> {
    /// In a file.
    Value(&'a Value),
    /// In a variable or a flag.
    Text(&'a str),
}

impl Given<'_> {
    pub(super) fn read<T: super::value::Setting>(&self) -> Read<T> {
        match self {
            Self::Value(value) => T::read(value),
            Self::Text(text) => T::read_text(text),
        }
    }
}

/// A group of settings that each have a default.
pub(crate) trait Section: Default + 'static {
    const KEYS: &'static [Key<Self>];

    /// From a table of a file. What it does not name keeps its default.
    fn read(value: &Value) -> Read<Self> {
        let table = value.as_table().ok_or_else(|| Problem::new(kind(value, "a table")))?;
        let mut section = Self::default();
        for (name, value) in table {
            let key = Self::KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
                let names = Self::KEYS.iter().map(|key| key.name);
                Problem::new(format!("unknown key{}", nearest(name, names))).under(name)
            })?;
            (key.set)(&mut section, &Given::Value(value)).map_err(|problem| problem.under(name))?;
        }
        Ok(section)
    }

    /// As a table, without what has its default.
    fn show(&self) -> Value {
        let default = Self::default();
        let differs = |key: &&Key<Self>| (key.show)(self) != (key.show)(&default);
        let shown: Table =
            Self::KEYS.iter().filter(differs).map(|key| (key.name.into(), (key.show)(self))).collect();
        Value::Table(shown)
    }
}

/// Declares a group: its fields, their types and defaults.
macro_rules! section {
    ($(#[$doc:meta])* $name:ident { $($key:ident: $type:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name {
            $(pub(crate) $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $crate::config::section::Section for $name {
            const KEYS: &'static [$crate::config::section::Key<Self>] = &[$(
                $crate::config::section::Key {
                    name: stringify!($key),
                    set: |section, given| {
                        section.$key = given.read()?;
                        Ok(())
                    },
                    show: |section| $crate::config::value::Setting::show(&section.$key),
                },
            )*];
        }
    };
}
pub(super) use section;
