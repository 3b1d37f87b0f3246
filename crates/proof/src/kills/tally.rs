//! What the program says in the end.

use serde_json::Value;
use twobox_core::BoxError;

/// What was done and what came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Processes killed with SIGKILL.
    pub kills: u64,
    /// Of these, while a request with messages was unanswered.
    pub in_flight: u64,
    /// Connections cut in the middle of a request.
    pub cuts: u64,
    /// Answers that were lost on their way back.
    pub answers_lost: u64,
    /// Orders placed, each in one transaction with its message.
    pub orders: u64,
    /// Messages that were acknowledged.
    pub delivered: u64,
    /// Deliveries that the inbox has answered as duplicates.
    pub duplicates: u64,
    /// Orders without their effect.
    pub lost: u64,
    /// Effects beyond the first of an order.
    pub doubled: u64,
    /// Effects without an order, or with other content.
    pub wrong: u64,
    /// Messages that died, although nothing gave them a reason to.
    pub dead: u64,
    /// How long the slowest pair took.
    pub seconds: f64,
    /// What must not be, each with the command that repeats it.
    pub violations: Vec<String>,
}

impl Tally {
    /// Reads the result of one pair.
    pub(super) fn read(json: &[u8], replay: &str) -> Result<Self, BoxError> {
        let result: Value = serde_json::from_slice(json)?;
        let number = |name: &str| {
            result[name]
                .as_u64()
                .ok_or_else(|| BoxError::from(format!("there is no number {name} in {result}")))
        };
        let mut tally = Self {
            kills: number("kills")?,
            in_flight: number("kills_in_flight")?,
            cuts: number("cuts")?,
            answers_lost: number("answers_lost")?,
            orders: number("orders")?,
            delivered: number("delivered")?,
            duplicates: number("duplicates_suppressed")?,
            lost: number("lost")?,
            doubled: number("doubled")?,
            wrong: number("phantoms")? + number("wrong")?,
            dead: number("dead")?,
            seconds: result["seconds"].as_f64().unwrap_or_default(),
            violations: Vec::new(),
        };
        if result["whole"] != true {
            tally.violations.push(format!(
                "{} lost, {} doubled, {} wrong, {} dead, {} of {} orders delivered: {replay}",
                tally.lost, tally.doubled, tally.wrong, tally.dead, tally.delivered, tally.orders
            ));
        }
        Ok(tally)
    }

    /// Adds what another pair has done at the same time.
    pub fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.in_flight += other.in_flight;
        self.cuts += other.cuts;
        self.answers_lost += other.answers_lost;
        self.orders += other.orders;
        self.delivered += other.delivered;
        self.duplicates += other.duplicates;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.wrong += other.wrong;
        self.dead += other.dead;
        self.seconds = self.seconds.max(other.seconds);
        self.violations.extend(other.violations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"kills": 2, "kills_in_flight": 1, "cuts": 3, "answers_lost": 4, "orders": 5, "delivered": 5,
        "duplicates_suppressed": 6, "lost": 0, "doubled": 0, "phantoms": 0, "wrong": 0, "dead": 0, "seconds": 1.5,
        "whole": true}"#;

    #[test]
    fn what_is_not_whole_is_a_violation_that_names_its_command() {
        let mut sum = Tally::read(WHOLE.as_bytes(), "demo --seed=1").unwrap();
        assert!(sum.violations.is_empty(), "{sum:?}");
        let lost = WHOLE.replace("\"lost\": 0", "\"lost\": 7").replace("true", "false");
        sum.add(Tally::read(lost.as_bytes(), "demo --seed=2").unwrap());
        assert_eq!((sum.kills, sum.in_flight, sum.lost), (4, 2, 7));
        assert!(
            sum.violations[0].contains("7 lost") && sum.violations[0].ends_with("demo --seed=2"),
            "{sum:?}"
        );
    }

    #[test]
    fn what_cannot_be_understood_is_an_error() {
        for text in ["", "{}", "panicked"] {
            assert!(Tally::read(text.as_bytes(), "demo").is_err(), "{text:?}");
        }
    }
}
