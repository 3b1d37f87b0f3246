//! Medians and quartiles.

/// The middle of some samples and how far they spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quartiles {
    pub(crate) q1: f64,
    pub(crate) median: f64,
    pub(crate) q3: f64,
}

impl Quartiles {
    /// Zeros if there are no samples.
    pub(crate) fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self { q1: quarter(&sorted, 1), median: quarter(&sorted, 2), q3: quarter(&sorted, 3) }
    }

    /// Distance of the quartiles, as a part of the median.
    pub(crate) fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.q3 - self.q1) / self.median }
    }
}

/// The median; zero if there are no samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    Quartiles::of(samples).median
}

/// The sample that `percent` hundredths of all are at or below; zero if there are no samples.
pub(crate) fn percentile(samples: &[f64], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

/// How many per second.
pub(crate) fn per_second(count: u64, duration: std::time::Duration) -> f64 {
    count as f64 / duration.as_secs_f64().max(f64::EPSILON)
}

/// The value `quarters` quarters into the sorted samples, between two of them if need be.
fn quarter(sorted: &[f64], quarters: usize) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let (below, part) = (last * quarters / 4, last * quarters % 4);
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * part as f64 / 4.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_samples() {
        let quartiles = Quartiles::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(quartiles, Quartiles { q1: 1.75, median: 2.5, q3: 3.25 });
        assert!((quartiles.spread() - 0.6).abs() < 1e-9);
    }

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&samples, 99), 198.0);
        assert_eq!(percentile(&samples, 50), 100.0);
        assert_eq!(percentile(&[7.0], 1), 7.0);
        assert_eq!(percentile(&[], 99), 0.0);
    }

    #[test]
    fn few_samples_are_no_problem() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(Quartiles::of(&[7.0]), Quartiles { q1: 7.0, median: 7.0, q3: 7.0 });
        assert_eq!(Quartiles::of(&[]).spread(), 0.0);
    }
}
