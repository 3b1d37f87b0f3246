//! The text exposition format of Prometheus, version 0.0.4.

use std::fmt::Write;

use twobox_core::meters::Histogram;

/// Labels and their values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// What a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The page as far as it is written.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    /// Begins a figure: all its samples follow.
    pub(super) fn begin(&mut self, name: &'static str, kind: Kind, help: &str) {
        self.name = name;
        self.text.extend(["# HELP ", name, " "]);
        escape(&mut self.text, help, false);
        self.text.extend(["\n# TYPE ", name, " ", kind.as_str(), "\n"]);
    }

    /// A sample of a counter or a gauge.
    pub(super) fn value(&mut self, labels: Labels<'_>, value: f64) {
        self.sample("", labels, None, value);
    }

    /// The samples of a histogram.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        let (steps, all) = histogram.steps();
        for (bound, upto) in steps {
            self.sample("_bucket", labels, Some(("le", &bound.to_string())), number(upto));
        }
        self.sample("_bucket", labels, Some(("le", "+Inf")), number(all));
        let (whole, thousandths) = histogram.sum();
        self.sample("_sum", labels, None, number(whole) + number(thousandths) / 1e3);
        self.sample("_count", labels, None, number(all));
    }

    fn sample(&mut self, suffix: &str, labels: Labels<'_>, last: Option<(&str, &str)>, value: f64) {
        self.text.extend([self.name, suffix]);
        let mut mark = '{';
        for (label, of) in labels.iter().chain(&last) {
            self.text.push(mark);
            self.text.extend([label, "=\""]);
            escape(&mut self.text, of, true);
            self.text.push('"');
            mark = ',';
        }
        self.text.push_str(if mark == ',' { "} " } else { " " });
        // Writing to a string cannot fail.
        let _: std::fmt::Result = writeln!(self.text, "{value}");
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// A count as a value. Exact up to nine thousand million million.
#[expect(clippy::cast_precision_loss, reason = "that is more than is ever counted")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}

fn escape(text: &mut String, value: &str, quotes: bool) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            c => text.push(c),
        }
    }
}
