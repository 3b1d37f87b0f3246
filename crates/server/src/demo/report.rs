//! The result, for people and for machines.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::audit::Audit;
use crate::cli::thousands;

/// How the demonstration went.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) seed: u64,
    pub(super) audit: Audit,
    pub(super) wanted: u64,
    pub(super) duplicates: u64,
    pub(super) kills_shop: u32,
    pub(super) kills_billing: u32,
    pub(super) kills_wanted: u32,
    pub(super) kills_in_flight: u32,
    pub(super) cuts: u64,
    pub(super) answers_lost: u64,
    pub(super) took: Duration,
}

impl Outcome {
    fn kills(&self) -> u32 {
        self.kills_shop + self.kills_billing
    }

    /// Whether everything happened, and once.
    pub(super) fn is_whole(&self) -> bool {
        let audit = &self.audit;
        // Nothing here gives a message a reason to die.
        let nothing = [audit.lost, audit.doubled, audit.phantoms, audit.wrong, audit.dead];
        let everything = [audit.orders, audit.enqueued, audit.delivered, audit.invoices];
        nothing == [0; 5] && everything == [self.wanted; 4] && self.kills() == self.kills_wanted
    }

    fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let delivered = self.audit.delivered as f64;
        delivered / self.took.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// For machines.
pub(super) fn json(outcome: &Outcome, kept: Option<&Path>) -> Value {
    let audit = &outcome.audit;
    json!({
        "seed": outcome.seed,
        "orders": audit.orders,
        "enqueued": audit.enqueued,
        "delivered": audit.delivered,
        "dead": audit.dead,
        "invoices": audit.invoices,
        "duplicates_suppressed": outcome.duplicates,
        "kills": outcome.kills(),
        "kills_shop": outcome.kills_shop,
        "kills_billing": outcome.kills_billing,
        "kills_in_flight": outcome.kills_in_flight,
        "cuts": outcome.cuts,
        "answers_lost": outcome.answers_lost,
        "lost": audit.lost,
        "doubled": audit.doubled,
        "phantoms": audit.phantoms,
        "wrong": audit.wrong,
        "seconds": outcome.took.as_secs_f64(),
        "messages_per_second": outcome.rate(),
        "whole": outcome.is_whole(),
        "kept": kept,
    })
}

/// For people.
pub(super) fn table(outcome: &Outcome, kept: Option<&Path>) -> String {
    let audit = &outcome.audit;
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let rows: [(&str, String, String); 11] = [
        ("orders placed", thousands(audit.orders), "committed by shop, by SQL".into()),
        ("messages enqueued", thousands(audit.enqueued), "in the same transactions".into()),
        ("delivered", thousands(audit.delivered), dead(audit.dead)),
        ("invoices", thousands(audit.invoices), "written by billing, by SQL".into()),
        (
            "duplicates suppressed",
            thousands(outcome.duplicates),
            "delivered again, answered from the inbox".into(),
        ),
        (
            "kills (SIGKILL)",
            outcome.kills().to_string(),
            format!("{} with a request in flight", outcome.kills_in_flight),
        ),
        ("connections cut", outcome.cuts.to_string(), "in the middle of a request".into()),
        ("answers lost", outcome.answers_lost.to_string(), "after the work was done".into()),
        ("lost", thousands(audit.lost), "orders without an invoice or a dead letter".into()),
        (
            "doubled",
            thousands(audit.doubled),
            format!("invoices too many; {} without an order, {} wrong", audit.phantoms, audit.wrong),
        ),
        (
            "rate",
            thousands(whole(outcome.rate())),
            format!("messages per second, in {:.1} s", outcome.took.as_secs_f64()),
        ),
    ];
    for (name, value, detail) in rows {
        table.add_row([name.to_owned(), value, detail]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let verdict = if outcome.is_whole() {
        "Nothing was lost, nothing happened twice."
    } else {
        "NOT WHOLE: see above."
    };
    let mut text = format!("{table}\n{verdict} (--seed {})\n", outcome.seed);
    if let Some(folder) = kept {
        let _: std::fmt::Result = writeln!(text, "The databases are in {}", folder.display());
    }
    text
}

fn dead(count: u64) -> String {
    if count == 0 { "acknowledged by billing".into() } else { format!("and {count} dead letters") }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is no larger than a count"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(change: impl Fn(&mut Audit)) -> Outcome {
        let mut audit =
            Audit { orders: 1_234, enqueued: 1_234, delivered: 1_234, invoices: 1_234, ..Audit::default() };
        change(&mut audit);
        Outcome {
            seed: 7,
            audit,
            wanted: 1_234,
            duplicates: 0,
            kills_shop: 1,
            kills_billing: 1,
            kills_wanted: 2,
            kills_in_flight: 1,
            cuts: 0,
            answers_lost: 0,
            took: Duration::from_secs(1),
        }
    }

    #[test]
    fn anything_lost_doubled_or_missing_fails_the_demonstration() {
        assert!(outcome(|_| {}).is_whole());
        for change in [
            |audit: &mut Audit| audit.lost = 1,
            |audit: &mut Audit| audit.wrong = 1,
            |audit: &mut Audit| (audit.delivered, audit.dead) = (1_233, 1),
            |audit: &mut Audit| audit.invoices = 1_233,
            |audit: &mut Audit| audit.doubled = 1,
            |audit: &mut Audit| audit.phantoms = 1,
            |audit: &mut Audit| audit.orders = 1_233,
            |audit: &mut Audit| audit.enqueued = 1_235,
            |audit: &mut Audit| audit.delivered = 1_233,
        ] {
            assert!(!outcome(change).is_whole());
        }
        assert!(
            !Outcome { kills_shop: 0, ..outcome(|_| {}) }.is_whole(),
            "what was not killed proves nothing"
        );
    }

    #[test]
    fn both_forms_say_the_same() {
        let outcome = outcome(|audit| audit.lost = 1_000_000);
        let text = table(&outcome, Some(Path::new("/kept")));
        assert!(text.contains("1,000,000") && text.contains("NOT WHOLE") && text.contains("/kept"), "{text}");
        let json = json(&outcome, None);
        assert_eq!((json["lost"].as_u64(), json["whole"].as_bool()), (Some(1_000_000), Some(false)));
        assert_eq!(json["messages_per_second"], 1234.0);
    }
}
