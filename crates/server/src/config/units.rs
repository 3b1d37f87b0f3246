//! Durations and sizes that people can read: `"5 min"`, `"256 KiB"`.

use std::time::Duration;

use toml::Value;

use super::value::{Problem, Read, Setting, kind, text};

/// Longest duration that can be written: a hundred years. Sums of several then never overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

const TIMES: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

text!(Duration, parse_duration, |duration| show_duration(*duration));

text!(Size, parse_size, |size| {
    let (unit, bytes) = largest(&SIZES, size.0 as u64);
    format!("{} {unit}", size.0 as u64 / bytes)
});

/// One or more numbers, each with its unit: `1 h 30 min`.
pub(crate) fn parse_duration(text: &str) -> Read<Duration> {
    let wrong = || {
        Problem::new(format!(
            "{text:?} is no duration: write a number and a unit (ms, s, min, h, d), as in \"5 min\""
        ))
    };
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    while !rest.is_empty() || text.trim().is_empty() {
        let (number, unit, after) = next(rest).ok_or_else(wrong)?;
        let millis = TIMES.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
        let part = millis.and_then(|millis| number.checked_mul(millis)).ok_or_else(wrong)?;
        total = total.saturating_add(Duration::from_millis(part));
        rest = after;
    }
    if total > LONGEST {
        return Err(Problem::new(format!("{text:?} is more than 100 years: write less")));
    }
    Ok(total)
}

fn parse_size(text: &str) -> Read<Size> {
    let wrong = || {
        Problem::new(format!(
            "{text:?} is no size: write a number and a unit (B, KiB, MiB, GiB), as in \"256 KiB\""
        ))
    };
    let (number, unit, _) = next(text.trim()).filter(|(_, _, rest)| rest.is_empty()).ok_or_else(wrong)?;
    let bytes = SIZES.iter().find(|(name, _)| *name == unit).map(|(_, bytes)| *bytes);
    let bytes = bytes.and_then(|bytes| number.checked_mul(bytes)).ok_or_else(wrong)?;
    usize::try_from(bytes).map(Size).map_err(|_| wrong())
}

/// A number, its unit, and what follows.
fn next(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, rest) = text.split_at(digits);
    let rest = rest.trim_start();
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    Some((number.parse().ok()?, unit, rest.trim_start()))
}

/// As people write it: in the largest unit that leaves no rest, in days from two of them on.
pub(crate) fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let units = if millis < 2 * 86_400_000 { &TIMES[..4] } else { &TIMES[..] };
    let (unit, worth) = largest(units, millis);
    format!("{} {unit}", millis / worth)
}

fn largest<'a>(units: &[(&'a str, u64)], number: u64) -> (&'a str, u64) {
    let fits = |(_, worth): &&(&str, u64)| number > 0 && number.is_multiple_of(*worth);
    units.iter().rev().find(fits).or(units.first()).copied().unwrap_or(("", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown_as_people_write_them() {
        let read = |text| Duration::read_text(text).map(show_duration);
        for text in ["0 ms", "1 ms", "500 ms", "2 s", "90 s", "5 min", "24 h", "36 h", "7 d"] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        assert_eq!(read("1 h 30 min").as_deref(), Ok("90 min"));
        assert_eq!(read("300s").as_deref(), Ok("5 min"));
        for text in ["", "5", "s", "5 sec", "-1 s", "1.5 h", "99999999999999999999 s", "40000 d"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_and_shown_as_people_write_them() {
        let read = |text| Size::read_text(text).map(|size| size.show().to_string());
        for text in ["1 B", "1000 B", "256 KiB", "1 MiB", "64 MiB", "3 GiB"] {
            assert_eq!(read(text), Ok(format!("\"{text}\"")));
        }
        for text in ["", "1", "KiB", "1 KB", "1 KiB 1 B", "99999999999999999999 GiB"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
