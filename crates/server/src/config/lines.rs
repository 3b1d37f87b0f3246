//! Which line of a file a setting stands on.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

/// The lines of all names of a file, by their path.
#[derive(Debug, Default)]
pub(super) struct Lines(BTreeMap<String, usize>);

impl Lines {
    pub(super) fn of_text(text: &str) -> Self {
        let mut lines = Self::default();
        if let Ok(table) = DeTable::parse(text) {
            lines.table(text, "", table.get_ref());
        }
        lines
    }

    /// The line of a path, or of the nearest one above it.
    pub(super) fn of(&self, path: &str) -> usize {
        let mut path = path;
        loop {
            match (self.0.get(path), path.rsplit_once('.')) {
                (Some(line), _) => return *line,
                (None, Some((parent, _))) => path = parent,
                (None, None) => return 1,
            }
        }
    }

    /// The line of a byte.
    pub(super) fn count(text: &str, byte: usize) -> usize {
        1 + text.bytes().take(byte).filter(|byte| *byte == b'\n').count()
    }

    fn table(&mut self, text: &str, path: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let path = if path.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{path}.{}", name.get_ref())
            };
            self.0.insert(path.clone(), Self::count(text, name.span().start));
            self.value(text, &path, value.get_ref());
        }
    }

    fn value(&mut self, text: &str, path: &str, value: &DeValue<'_>) {
        match value {
            DeValue::Table(table) => self.table(text, path, table),
            DeValue::Array(values) => {
                for (place, value) in values.iter().enumerate() {
                    let path = format!("{path}.{place}");
                    self.0.insert(path.clone(), Self::count(text, value.span().start));
                    self.value(text, &path, value.get_ref());
                }
            }
            _ => {}
        }
    }
}
