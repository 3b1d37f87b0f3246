//! From a range of dates to a range of places. Rows stand in the order in which they were written, and so, as far as
//! clocks can be trusted, in that of their dates: a place is found by looking at a few dozen rows.

use rusqlite::Connection;
use twobox_core::Timestamp;
use twobox_core::ports::ops::DATE_SLACK_ROWS;

/// Both ends are outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) above: i64,
    pub(super) below: i64,
}

impl Range {
    pub(super) const ALL: Self = Self { above: i64::MIN, below: i64::MAX };

    /// The places that may hold what is dated from `from` and before `until`.
    pub(super) fn of_dates(
        connection: &Connection,
        (bounds, dates): (&str, &str),
        from: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> rusqlite::Result<Self> {
        if from.is_none() && until.is_none() {
            return Ok(Self::ALL);
        }
        let ends = connection
            .prepare_cached(bounds)?
            .query_row([], |row| Ok(row.get::<_, Option<i64>>(0)?.zip(row.get::<_, Option<i64>>(1)?)))?;
        let Some((first, last)) = ends else { return Ok(Self::ALL) };
        let next = |at: i64| {
            let mut statement = connection.prepare_cached(dates)?;
            let rows = statement.query_map([at], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(i64, i64)>>>()
        };
        let place = |date: Timestamp| {
            bisect(first, last, |at| {
                let dates = next(at)?.into_iter().map(|(_, date)| date).collect();
                Ok::<_, rusqlite::Error>(median(dates).is_none_or(|found| found >= date.as_micros()))
            })
        };
        let slack = i64::try_from(DATE_SLACK_ROWS).unwrap_or(i64::MAX).saturating_add(1);
        let mut range = Self::ALL;
        if let Some(from) = from {
            // What is left of before the first row may be as late as that.
            let at = place(from)?;
            range.above = if at > first { at.saturating_sub(slack) } else { i64::MIN };
        }
        if let Some(until) = until {
            // Of three rows the first two may still be before it, and there may be a gap behind each of them in which
            // only what waits is left.
            let at = next(place(until)?)?;
            range.below = at.last().map_or(i64::MAX, |(row, _)| row.saturating_add(slack));
        }
        Ok(range)
    }

    /// What is left of it before a place.
    pub(super) fn before(self, place: i64) -> Self {
        Self { below: self.below.min(place), ..self }
    }
}

/// The middle one: a single wrong date misleads nobody.
fn median(mut dates: Vec<i64>) -> Option<i64> {
    dates.sort_unstable();
    dates.get(dates.len() / 2).copied()
}

/// The first place from `first` to `last` that is late, or the one behind them.
fn bisect<E>(first: i64, last: i64, mut is_late: impl FnMut(i64) -> Result<bool, E>) -> Result<i64, E> {
    let (mut low, mut high) = (first, last.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        if is_late(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rf_22_a_place_is_found_in_a_few_looks() {
        for wanted in [1, 2, 500_000, 999_999, 1_000_000, 1_000_001] {
            let mut looks = 0;
            let found = bisect(1, 1_000_000, |at| {
                looks += 1;
                Ok::<_, std::convert::Infallible>(at >= wanted)
            });
            assert_eq!(found, Ok(wanted));
            assert!(looks <= 20, "{looks}");
        }
    }

    #[test]
    fn rf_22_one_wrong_date_misleads_nobody() {
        assert_eq!(median(vec![5, i64::MAX, 6]), Some(6));
        assert_eq!(median(vec![i64::MIN, 5, 6]), Some(5));
        assert_eq!(median(vec![7]), Some(7));
        assert_eq!(median(Vec::new()), None);
    }
}
