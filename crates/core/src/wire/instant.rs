//! RFC 3339 in UTC. The civil calendar follows Howard Hinnant, "chrono-compatible low-level date algorithms"
//! (<https://howardhinnant.github.io/date_algorithms.html>).

use crate::Timestamp;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

impl Timestamp {
    /// RFC 3339 in UTC with microseconds: `2026-02-14T12:00:00.000000Z`.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        format(self)
    }

    /// Reads RFC 3339 in UTC. `None` if it is something else.
    #[must_use]
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        parse(text)
    }
}

/// `2026-02-14T12:00:00.000000Z`. Years that RFC 3339 cannot write get a sign and six digits, as in
/// JavaScript: a clock that is so wrong is refused as stale rather than as unreadable.
#[must_use]
pub fn format(time: Timestamp) -> String {
    let (days, micros) = (time.as_micros().div_euclid(DAY), time.as_micros().rem_euclid(DAY));
    let (year, month, day) = civil_from_days(days);
    let (seconds, fraction) = (micros / SECOND, micros % SECOND);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let year = if (0..=9999).contains(&year) { format!("{year:04}") } else { format!("{year:+07}") };
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z")
}

/// Reads what [`format()`] writes, and what RFC 3339 allows beside it in UTC: no fraction, or one of up to nine
/// digits, of which the first six count. Leap seconds are not known.
#[must_use]
pub fn parse(text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix(['Z', 'z']).or_else(|| text.strip_suffix("+00:00"))?;
    let (date, time) = text.split_once(['T', 't'])?;
    let micros = i128::from(parse_date(date)?) * i128::from(DAY) + i128::from(parse_time(time)?);
    i64::try_from(micros).ok().map(Timestamp::from_micros)
}

/// Days since 1970-01-01.
fn parse_date(date: &str) -> Option<i64> {
    let signed = date.starts_with(['+', '-']);
    let (year, rest) = date.split_at_checked(if signed { 7 } else { 4 })?;
    let year = match year.strip_prefix('-') {
        Some(year) => -number(year, 6)?,
        None if signed => number(&year[1..], 6)?,
        None => number(year, 4)?,
    };
    let (month, day) = rest.strip_prefix('-')?.split_once('-')?;
    let (month, day) = (number(month, 2)?, number(day, 2)?);
    if !(1..=12).contains(&month) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    // A day that its month does not have comes back as another date.
    (civil_from_days(days) == (year, month, day)).then_some(days)
}

/// Microseconds since midnight.
fn parse_time(time: &str) -> Option<i64> {
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = time.split(':').map(|part| number(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 || !(1..=9).contains(&fraction.len())
    {
        return None;
    }
    let fraction = number(&format!("{fraction:0<9}"), 9)? / 1_000;
    Some((hour * 3600 + minute * 60 + second) * SECOND + fraction)
}

/// Exactly `digits` digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let legal = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    legal.then(|| text.parse().ok()).flatten()
}

/// Year, month and day of a day since 1970-01-01. The year starts in March, so that leap days come last.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil_from_days`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn rf_09_known_dates() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_771_070_400_123_456, "2026-02-14T12:00:00.123456Z"),
            (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
            (253_402_300_800_000_000, "+010000-01-01T00:00:00.000000Z"),
            (i64::MAX, "+294247-01-10T04:00:54.775807Z"),
            (i64::MIN, "-290308-12-21T19:59:05.224192Z"),
        ] {
            assert_eq!(format(at(micros)), text);
            assert_eq!(parse(text), Some(at(micros)), "{text}");
        }
    }

    #[test]
    fn rf_09_other_writers_of_utc_are_understood() {
        let noon = Some(at(1_771_070_400_000_000));
        for text in ["2026-02-14T12:00:00Z", "2026-02-14t12:00:00.0z", "2026-02-14T12:00:00.000000999+00:00"]
        {
            assert_eq!(parse(text), noon, "{text}");
        }
    }

    #[test]
    fn dates_that_do_not_exist_are_refused() {
        for text in [
            "",
            "Z",
            "2026-02-29T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-32T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00+02:00",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1234567890Z",
            "2026-01-01T00:00:+1Z",
            "26-01-01T00:00:00Z",
            "+299999-01-01T00:00:00Z",
            "é026-01-01T00:00:00Z",
            "2026-01-01T00:00:00.éZ",
            "2026-01-01T00:00:00:00Z",
            "2026-1-1T0:0:0Z",
            "+é",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_instant_round_trips(micros in any::<i64>()) {
            prop_assert_eq!(parse(&format(at(micros))), Some(at(micros)));
        }

        #[test]
        fn any_text_is_refused_or_read(text in "[-+0-9TZ:.é]{0,40}") {
            let _ = parse(&text);
        }
    }
}
