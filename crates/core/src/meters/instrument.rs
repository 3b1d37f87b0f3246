//! Counters, gauges and histograms as plain atomics: no lock, no allocation, no clock.
//!
//! Every operation is relaxed. Figures are read one by one while others are written, so two of them need not fit each
//! other exactly; each by itself is never wrong.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Something that only grows while the process runs.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts one.
    pub fn one(&self) {
        self.add(1);
    }

    /// How much was counted.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Something that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// What it is now.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// What it is now, as a number of things.
    pub fn set_count(&self, count: usize) {
        self.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The last value.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Durations in milliseconds: from what a commit takes on a good disk to what a relay waits for.
const MILLIS: [u64; 14] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000];
/// Small numbers: retries, members of a group.
const COUNTS: [u64; 12] = [0, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1_000];

/// How often which values were seen, in fixed steps.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// How many units of `sum` make one of `bounds`.
    scale: u64,
    /// One more than there are bounds: the last is for whatever is above them.
    counts: Box<[Counter]>,
    sum: Counter,
}

impl Histogram {
    /// For durations. Bounds and sum are read in milliseconds, the sum to the microsecond.
    #[must_use]
    pub fn durations() -> Self {
        Self::new(&MILLIS, 1_000)
    }

    /// For small numbers.
    #[must_use]
    pub fn numbers() -> Self {
        Self::new(&COUNTS, 1)
    }

    fn new(bounds: &'static [u64], scale: u64) -> Self {
        let counts = (0..=bounds.len()).map(|_| Counter::default()).collect();
        Self { bounds, scale, counts, sum: Counter::default() }
    }

    /// Notes that `duration` was seen `times` times: once for each message that travelled in one request, say.
    pub fn took(&self, duration: Duration, times: usize) {
        self.note(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX), times);
    }

    /// Notes that a number was seen `times` times.
    pub fn saw(&self, number: u64, times: usize) {
        self.note(number.saturating_mul(self.scale), times);
    }

    fn note(&self, units: u64, times: usize) {
        let times = times as u64;
        let at = self.bounds.partition_point(|bound| bound.saturating_mul(self.scale) < units);
        self.counts[at].add(times);
        self.sum.add(units.saturating_mul(times));
    }

    /// The upper bounds with how many values were at most that, and how many values there were.
    #[must_use]
    pub fn steps(&self) -> (Vec<(u64, u64)>, u64) {
        let mut sum = 0;
        let mut upto = |counter: &Counter| {
            sum += counter.get();
            sum
        };
        let steps =
            self.bounds.iter().zip(&self.counts).map(|(bound, count)| (*bound, upto(count))).collect();
        let all = upto(&self.counts[self.bounds.len()]);
        (steps, all)
    }

    /// The sum of all values: whole ones, and thousandths.
    #[must_use]
    pub fn sum(&self) -> (u64, u64) {
        let sum = self.sum.get();
        (sum / self.scale, sum % self.scale * (1_000 / self.scale.min(1_000)))
    }
}

/// A fixed set of cases that are counted apart.
pub trait Case: Copy + 'static {
    /// All of them, in the order of their places.
    const ALL: &'static [Self];

    /// Its name, as a label's value.
    fn as_str(self) -> &'static str;

    /// Its place among all.
    fn place(self) -> usize;
}

/// A counter for each case.
pub struct Counters<C> {
    counts: Box<[Counter]>,
    cases: PhantomData<fn(C)>,
}

impl<C: Case> Counters<C> {
    /// Counts `more` of a case.
    pub fn add(&self, case: C, more: u64) {
        self.counts[case.place()].add(more);
    }

    /// Counts one of a case.
    pub fn one(&self, case: C) {
        self.add(case, 1);
    }

    /// How much was counted of a case.
    #[must_use]
    pub fn get(&self, case: C) -> u64 {
        self.counts[case.place()].get()
    }

    /// Every case with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        C::ALL.iter().map(|case| (case.as_str(), self.get(*case)))
    }
}

impl<C: Case> Default for Counters<C> {
    fn default() -> Self {
        Self { counts: C::ALL.iter().map(|_| Counter::default()).collect(), cases: PhantomData }
    }
}

impl<C: Case> fmt::Debug for Counters<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// An enum whose cases are counted apart.
macro_rules! cases {
    ($($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$case_doc])* $case,)*
        }

        impl Case for $name {
            const ALL: &'static [Self] = &[$(Self::$case,)*];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$case => $text,)*
                }
            }

            fn place(self) -> usize {
                self as usize
            }
        }
    )*};
}

pub(super) use cases;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rf_21_a_histogram_counts_each_value_in_its_step_and_in_all_above() {
        let histogram = Histogram::durations();
        histogram.took(Duration::from_micros(1_000), 1);
        histogram.took(Duration::from_micros(1_001), 3);
        histogram.took(Duration::from_secs(3_600), 1);
        let (steps, all) = histogram.steps();
        assert_eq!(steps[..3], [(1, 1), (2, 4), (5, 4)]);
        assert_eq!((steps.last(), all), (Some(&(30_000, 4)), 5));
        assert_eq!(histogram.sum(), (3_600_000 + 4, 3));
        let retries = Histogram::numbers();
        retries.saw(0, 500);
        retries.saw(6, 1);
        assert_eq!(retries.steps().0[..6], [(0, 500), (1, 500), (2, 500), (3, 500), (5, 500), (10, 501)]);
        assert_eq!(retries.sum(), (6, 0));
    }
}
