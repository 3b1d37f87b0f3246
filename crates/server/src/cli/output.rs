//! What commands print: tables for people, JSON for machines. Data goes to standard output, everything else to standard
//! error.

use std::fmt;
use std::io::{IsTerminal as _, Write as _, stdout};

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use serde::Serialize;

use super::text::{thousands, visible, visible_json};
use crate::Result;

/// Prints data.
pub(crate) fn print(text: &impl fmt::Display) -> Result<()> {
    let mut out = stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

/// Prints data as JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&visible_json(&serde_json::to_string_pretty(value)?))
}

/// A table.
pub(super) struct Sheet {
    table: Table,
    styled: bool,
}

impl Sheet {
    /// A table with these columns.
    pub(super) fn new<const N: usize>(columns: [&str; N]) -> Self {
        let mut sheet = Self::plain();
        let header = columns.map(|name| sheet.styled(name.to_uppercase(), None, Attribute::Bold));
        sheet.table.set_header(header);
        sheet
    }

    /// A table without headings.
    pub(super) fn plain() -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let is_terminal = stdout().is_terminal();
        if is_terminal {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        } else {
            // Nothing is wrapped that a program reads line by line.
            table.force_no_tty().set_content_arrangement(ContentArrangement::Disabled);
        }
        let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { table, styled: is_terminal && !wants_none }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.table.add_row(cells.into_iter().collect::<Vec<_>>());
    }

    /// A row of a name and a value, unless there is none.
    pub(super) fn fact(&mut self, name: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            let name = self.styled(name.into(), None, Attribute::Dim);
            self.row([name, text(value.as_ref())]);
        }
    }

    /// Something that is as it should be.
    pub(super) fn good(&self, text: &str) -> Cell {
        self.styled(visible(text), Some(Color::Green), Attribute::Reset)
    }

    /// Something that needs somebody.
    pub(super) fn bad(&self, text: &str) -> Cell {
        self.styled(visible(text), Some(Color::Red), Attribute::Reset)
    }

    /// Something that is on its way.
    pub(super) fn open(&self, text: &str) -> Cell {
        self.styled(visible(text), Some(Color::Yellow), Attribute::Reset)
    }

    /// The state of a message.
    pub(super) fn status(&self, status: &str) -> Cell {
        match status {
            "Sent" | "Done" => self.good(status),
            "Failed" | "Dead" | "Expired" => self.bad(status),
            _ => self.open(status),
        }
    }

    fn styled(&self, text: String, color: Option<Color>, attribute: Attribute) -> Cell {
        let cell = Cell::new(text);
        match color {
            _ if !self.styled => cell,
            Some(color) => cell.fg(color),
            None => cell.add_attribute(attribute),
        }
    }
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.table.trim_fmt();
        // The margin that would stand before the first column.
        let lines: Vec<&str> = text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// A text from outside.
pub(super) fn text(text: &str) -> Cell {
    Cell::new(visible(text))
}

/// A text that may be missing.
pub(super) fn maybe(value: Option<&str>) -> Cell {
    text(value.unwrap_or("-"))
}

/// A number.
pub(super) fn number(number: u64) -> Cell {
    right(thousands(number))
}

/// Something that is compared by its digits.
pub(super) fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
