//! Texts for people: nothing in them acts on the terminal, and times are told from now.

use std::fmt::Write as _;
use std::time::Duration;

use twobox_core::handler::is_hidden;
use twobox_core::system::SystemClock;
use twobox_core::{Clock as _, Timestamp};

use super::failure::Failure;
use crate::config::parse_duration;

/// A text from outside with everything spelt out that is not seen but acts.
pub(crate) fn visible(text: &str) -> String {
    spelt(text, is_hidden, |text, c| _ = write!(text, "{}", c.escape_unicode()))
}

/// The same for JSON, where such characters can only stand in strings.
pub(super) fn visible_json(json: &str) -> String {
    // Line breaks stand between its parts; within them they are escaped already.
    let is_odd = |c| is_hidden(c) && c != '\n';
    spelt(json, is_odd, |text, c| {
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            _ = write!(text, "\\u{unit:04x}");
        }
    })
}

fn spelt(text: &str, is_odd: impl Fn(char) -> bool, spell: impl Fn(&mut String, char)) -> String {
    let mut spelt = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) { spell(&mut spelt, c) } else { spelt.push(c) }
    }
    spelt
}

/// Now.
pub(super) fn now() -> Timestamp {
    SystemClock::default().now()
}

/// How long ago that was, or how long it still takes.
pub(super) fn from_now(at: &str, now: Timestamp) -> String {
    let Some(at) = Timestamp::from_rfc3339(at) else { return visible(at) };
    if at > now {
        format!("in {}", roughly(at.since(now)))
    } else {
        format!("{} ago", roughly(now.since(at)))
    }
}

/// A duration with as much detail as people need.
pub(super) fn roughly(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if !duration.is_zero() => format!("{} ms", duration.as_millis()),
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A number with its thousands set apart.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time as the API takes it: RFC 3339, or how long ago.
pub(super) fn moment(text: &str) -> Result<String, Failure> {
    if Timestamp::from_rfc3339(text).is_some() {
        return Ok(text.into());
    }
    let ago = parse_duration(text).map_err(|_| {
        let text = visible(text);
        Failure::usage(format!("{text:?} is no time: write 2026-02-14T12:00:00Z, or how long ago: \"2 h\""))
    })?;
    Ok(now().minus(ago).to_rfc3339())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s16_what_comes_from_outside_cannot_act_on_the_terminal() {
        let nasty = "a\u{1b}[31m\u{9b}2J\r\n\u{202e}b\u{7f}é";
        assert_eq!(visible(nasty), "a\\u{1b}[31m\\u{9b}2J\\u{d}\\u{a}\\u{202e}b\\u{7f}é");
        let json = serde_json::to_string(nasty).unwrap();
        let shown = visible_json(&json);
        assert!(!shown.chars().any(is_hidden), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), nasty);
    }

    #[test]
    fn rf_22_times_are_told_from_now() {
        let now = Timestamp::from_rfc3339("2026-02-14T12:00:00Z").unwrap();
        let told = |at: &str| from_now(at, now);
        assert_eq!(told("2026-02-14T11:57:00Z"), "3 min ago");
        assert_eq!(told("2026-02-14T12:00:00Z"), "0 s ago");
        assert_eq!(told("2026-02-14T11:59:59.5Z"), "500 ms ago");
        assert_eq!(told("2026-02-14T13:00:01Z"), "in 1 h");
        assert_eq!(told("2026-02-01T12:00:00Z"), "13 d ago");
        assert_eq!(told("\u{1b}"), "\\u{1b}");
    }

    #[test]
    fn rf_22_a_time_may_be_given_as_how_long_ago() {
        assert_eq!(moment("2026-02-14T12:00:00Z").unwrap(), "2026-02-14T12:00:00Z");
        let hour_ago = Timestamp::from_rfc3339(&moment("1 h").unwrap()).unwrap();
        assert!(now().since(hour_ago) >= Duration::from_secs(3600));
        assert!(moment("yesterday").unwrap_err().to_string().contains("how long ago"));
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(
            ["0", "999", "1,000", "12,345,678"],
            [0, 999, 1_000, 12_345_678].map(thousands).each_ref().map(String::as_str)
        );
    }
}
