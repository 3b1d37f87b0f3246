//! Results for people and for machines.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::stats::Quartiles;

/// Raw samples whose quartiles lie further apart than this say that the machine was busy with something else.
const SPREAD_MAX: f64 = 0.3;

/// More syncs per second than any disk manages.
const IMPLAUSIBLE: f64 = 100_000.0;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A multiple of the raw rate.
    TimesRaw,
    /// A multiple of something else.
    Times,
    /// Messages per sync.
    PerSync,
    /// Hundredths.
    Percent,
    /// Per second.
    PerSecond,
    /// Millionths of a second.
    Micros,
    /// Memory.
    Mebibytes,
}

impl Unit {
    fn text(self) -> &'static str {
        match self {
            Self::TimesRaw => "x raw",
            Self::Times => "x",
            Self::PerSync => "per sync",
            Self::Percent => "%",
            Self::PerSecond => "/s",
            Self::Micros => "us",
            Self::Mebibytes => "MiB",
        }
    }
}

/// What a value should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Below(limit) => value < limit,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least}"),
            Self::AtMost(most) => format!("<= {most}"),
            Self::Below(limit) => format!("< {limit}"),
        }
    }
}

/// What is to be made of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    Missed,
    /// The machine was too noisy to say.
    Void,
    /// Nothing was promised.
    Told,
}

impl Verdict {
    fn text(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Void => "VOID",
            Self::Told => "-",
        }
    }
}

/// One result.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    unit: Unit,
    target: Option<Target>,
    detail: String,
    samples: Vec<f64>,
    raw_samples: Vec<f64>,
    raw: Option<Quartiles>,
}

impl Figure {
    pub(crate) fn new(name: &'static str, value: f64, unit: Unit) -> Self {
        Self {
            name,
            value,
            unit,
            target: None,
            detail: String::new(),
            samples: Vec::new(),
            raw_samples: Vec::new(),
            raw: None,
        }
    }

    pub(crate) fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    pub(crate) fn detail(mut self, detail: String) -> Self {
        self.detail = detail;
        self
    }

    /// What the value is the median of.
    pub(crate) fn samples(mut self, samples: Vec<f64>) -> Self {
        self.samples = samples;
        self
    }

    /// The raw samples around its slices: of each slice the one before it and the one after.
    pub(crate) fn raw(mut self, samples: impl Iterator<Item = f64>) -> Self {
        self.raw_samples = samples.collect();
        self.raw = Some(Quartiles::of(&self.raw_samples));
        self
    }

    fn verdict(&self) -> Verdict {
        match self.target {
            _ if self.raw.is_some_and(|raw| raw.spread() > SPREAD_MAX) => Verdict::Void,
            None => Verdict::Told,
            Some(target) if target.is_met(self.value) => Verdict::Met,
            Some(_) => Verdict::Missed,
        }
    }

    fn json(&self) -> Value {
        let raw = self
            .raw
            .map(|raw| json!({ "q1": raw.q1, "median": raw.median, "q3": raw.q3, "spread": raw.spread(), "samples": self.raw_samples }));
        json!({
            "name": self.name,
            "value": self.value,
            "unit": self.unit.text(),
            "target": self.target.map(Target::text),
            "verdict": self.verdict().text(),
            "detail": self.detail,
            "samples": self.samples,
            "raw": raw,
        })
    }

    fn cells(&self) -> [String; 6] {
        let noise = self.raw.map_or("-".into(), |raw| format!("{:.0} %", 100.0 * raw.spread()));
        [
            self.name.into(),
            format!("{} {}", number(self.value), self.unit.text()),
            self.target.map_or("-".into(), Target::text),
            self.verdict().text().into(),
            noise,
            self.detail.clone(),
        ]
    }
}

/// All results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    quick: bool,
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new(quick: bool) -> Self {
        Self { quick, figures: Vec::new() }
    }

    pub(crate) fn extend(&mut self, figures: impl IntoIterator<Item = Figure>) {
        self.figures.extend(figures);
    }

    /// Puts what everything is compared with in front.
    pub(crate) fn raw(&mut self, samples: &[f64]) {
        let raw = Quartiles::of(samples);
        let mut detail = format!("quartiles {} and {}", thousands(raw.q1), thousands(raw.q3));
        if raw.median > IMPLAUSIBLE {
            detail.push_str("; no disk is that fast: choose another folder with --dir");
        }
        let figure = Figure::new("raw, 4 KiB + fdatasync", raw.median, Unit::PerSecond)
            .detail(detail)
            .samples(samples.to_vec())
            .raw(samples.iter().copied());
        self.figures.insert(0, figure);
    }

    /// For machines.
    pub(crate) fn json(&self) -> Value {
        let is_void = self.figures.iter().any(|figure| figure.verdict() == Verdict::Void);
        json!({
            "quick": self.quick,
            "void": is_void,
            "processors": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let header = ["measurement", "value", "target", "verdict", "noise", "detail"].map(String::from);
        let rows: Vec<[String; 6]> =
            std::iter::once(header).chain(self.figures.iter().map(Figure::cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..6).map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            // Writing to a string cannot fail.
            let _: std::fmt::Result = writeln!(text, "{}", line.trim_end());
        }
        text + self.footnote()
    }

    fn footnote(&self) -> &'static str {
        let is_void = self.figures.iter().any(|figure| figure.verdict() == Verdict::Void);
        match (is_void, self.quick) {
            (true, _) => {
                "VOID: the disk's own speed varied too much meanwhile; try again on a quieter machine.\n"
            }
            (false, true) => "A quick run shows that everything works; its figures say little.\n",
            (false, false) => "",
        }
    }
}

/// A value with about three digits.
fn number(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        10.0..1_000.0 => format!("{value:.1}"),
        _ => thousands(value),
    }
}

/// A whole number with its thousands apart.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, raw: [f64; 4]) -> Figure {
        Figure::new("x", value, Unit::TimesRaw).target(Target::AtLeast(10.0)).raw(raw.into_iter())
    }

    #[test]
    fn a_noisy_machine_makes_a_figure_void_whatever_it_says() {
        assert_eq!(figure(99.0, [100.0, 100.0, 200.0, 200.0]).verdict(), Verdict::Void);
        assert_eq!(figure(99.0, [100.0, 101.0, 102.0, 103.0]).verdict(), Verdict::Met);
        assert_eq!(figure(9.0, [100.0, 101.0, 102.0, 103.0]).verdict(), Verdict::Missed);
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(thousands(1_234_567.4), "1 234 567");
        assert_eq!(thousands(12.0), "12");
        assert_eq!(number(0.567), "0.57");
        assert_eq!(number(56.78), "56.8");
        assert_eq!(number(5_678.0), "5 678");
    }

    #[test]
    fn columns_are_aligned() {
        let mut report = Report::new(true);
        report.extend([figure(99.0, [1.0; 4]).detail("d".into())]);
        let table = report.table();
        let mut lines = table.lines();
        let (header, row) = (lines.next().unwrap(), lines.next().unwrap());
        assert_eq!(header.find("detail"), row.rfind('d'));
    }
}
