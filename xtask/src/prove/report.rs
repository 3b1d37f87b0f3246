//! What a campaign has seen, for people and for machines.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::job::Seen;
use crate::Result;

/// What ten minutes on two processors must reach at the least: harness, figure, value.
const GOALS: [(&str, &str, u64); 8] = [
    ("powercut", "images with an acknowledged message", 100_000),
    ("world", "seeds", 2_000),
    ("world", "power cuts", 50_000),
    ("kills", "kills", 2_000),
    ("kills", "kills with a request in flight", 1_000),
    ("schedules", "schedules", 100_000),
    ("fuzz", "executions", 10_000_000),
    ("model", "unique states", 1_000_000),
];
/// Goals are for campaigns of this length and longer.
const GOAL_MINUTES: f64 = 10.0;

/// What all harnesses have seen.
pub(crate) struct Report {
    seen: Vec<Seen>,
    minutes: f64,
    took: Duration,
}

impl Report {
    pub(crate) fn new(seen: Vec<Seen>, minutes: f64, took: Duration) -> Self {
        Self { seen: seen.into_iter().fold(Vec::new(), joined), minutes, took }
    }

    /// For machines.
    pub(crate) fn json(&self) -> String {
        let harnesses: serde_json::Map<_, _> =
            self.seen.iter().map(|seen| (seen.name.to_owned(), seen.report.clone())).collect();
        let report = json!({
            "minutes": self.minutes,
            "seconds": self.took.as_secs_f64(),
            "harnesses": harnesses,
            "wrong": self.wrong(),
        });
        format!("{report:#}\n")
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("proved for {:.0} s\n\n", self.took.as_secs_f64());
        for seen in &self.seen {
            for (name, value) in figures(&seen.report) {
                let goal = goal(seen.name, name).map(|goal| format!("  (goal {})", thousands(goal)));
                let goal = goal.filter(|_| self.has_goals()).unwrap_or_default();
                _ = writeln!(text, "{:10} {name:36} {:>14}{goal}", seen.name, shown(value));
            }
        }
        text.push_str(&table(&mutants(&self.seen)));
        let wrong = self.wrong();
        _ = writeln!(
            text,
            "\n{}",
            if wrong.is_empty() { "nothing lost, nothing doubled, nothing stuck" } else { "WRONG:" }
        );
        wrong.iter().for_each(|wrong| _ = writeln!(text, "{wrong}"));
        text
    }

    /// Whether everything is as it should be.
    ///
    /// # Errors
    /// If it is not.
    pub(crate) fn verdict(&self) -> Result<()> {
        let wrong = self.wrong();
        if wrong.is_empty() { Ok(()) } else { Err(format!("{} things are wrong", wrong.len()).into()) }
    }

    fn has_goals(&self) -> bool {
        self.minutes >= GOAL_MINUTES
    }

    /// Broken promises, mutants that survived or were not tried, goals that were missed.
    fn wrong(&self) -> Vec<String> {
        let mut wrong = wrong(&self.seen);
        wrong.extend(untried(&self.seen));
        if self.has_goals() {
            wrong.extend(GOALS.iter().filter_map(|(harness, name, goal)| self.missed(harness, name, *goal)));
        }
        wrong
    }

    fn missed(&self, harness: &str, name: &str, goal: u64) -> Option<String> {
        let seen = self.seen.iter().find(|seen| seen.name == harness);
        let value = seen.and_then(|seen| seen.report["figures"][name].as_u64()).unwrap_or(0);
        let text = || format!("goal missed: {harness}, {name}: {} of {}", thousands(value), thousands(goal));
        (value < goal).then(text)
    }
}

/// Broken promises, and mutants that survived.
pub(crate) fn wrong(seen: &[Seen]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Seen { name, report } in seen {
        let violations = report["violations"].as_array().into_iter().flatten();
        wrong.extend(violations.map(|violation| format!("{name}: {}", shown(violation))));
        let alive = report["mutants"].as_array().into_iter().flatten();
        let alive = alive.filter(|mutant| mutant["found"].is_null());
        wrong.extend(alive.map(|mutant| format!("mutant survived: {}", shown(&mutant["name"]))));
    }
    wrong
}

/// Bugs that are planted and that nobody looks for, and bugs that are looked for although there are none. Nothing unless
/// all were to be looked for.
pub(crate) fn untried(seen: &[Seen]) -> Vec<String> {
    let planted: BTreeSet<String> = listed(seen, "planted").map(shown).collect();
    if planted.is_empty() {
        return Vec::new();
    }
    let tried: BTreeSet<String> = listed(seen, "mutants").map(|mutant| shown(&mutant["name"])).collect();
    let nobody = planted.difference(&tried).map(|name| format!("mutant that nobody looks for: {name}"));
    nobody.chain(tried.difference(&planted).map(|name| format!("mutant that is not there: {name}"))).collect()
}

fn listed<'a>(seen: &'a [Seen], list: &'a str) -> impl Iterator<Item = &'a Value> {
    seen.iter().filter_map(move |seen| seen.report[list].as_array()).flatten()
}

/// What two processes of one harness have seen, together.
fn joined(mut all: Vec<Seen>, seen: Seen) -> Vec<Seen> {
    let Some(same) = all.iter_mut().find(|other| other.name == seen.name) else {
        all.push(seen);
        return all;
    };
    for (name, value) in figures(&seen.report) {
        let sum = same.report["figures"][name].as_u64().unwrap_or(0) + value.as_u64().unwrap_or(0);
        same.report["figures"][name] = sum.into();
    }
    for list in ["violations", "mutants", "planted"] {
        let more = seen.report[list].as_array().into_iter().flatten().cloned();
        match same.report[list].as_array_mut() {
            Some(all) => all.extend(more),
            None => same.report[list] = more.collect(),
        }
    }
    all
}

fn goal(harness: &str, name: &str) -> Option<u64> {
    GOALS.iter().find(|(of, figure, _)| (*of, *figure) == (harness, name)).map(|(_, _, goal)| *goal)
}

fn figures(report: &Value) -> impl Iterator<Item = (&String, &Value)> {
    report["figures"].as_object().into_iter().flatten()
}

/// The planted bugs, of whichever programs have hunted them.
pub(crate) fn mutants(seen: &[Seen]) -> Vec<Value> {
    listed(seen, "mutants").cloned().collect()
}

/// The table of planted bugs.
pub(crate) fn table(mutants: &[Value]) -> String {
    if mutants.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{:28} {:12} {:>6}  {}\n", "mutant", "caught by", "seeds", "found");
    for mutant in mutants {
        let (name, harness) = (shown(&mutant["name"]), shown(&mutant["harness"]));
        let found = mutant["found"].as_str().unwrap_or("SURVIVED");
        let found = found.lines().next().unwrap_or_default();
        _ = writeln!(text, "{name:28} {harness:12} {:>6}  {found}", shown(&mutant["seeds"]));
    }
    text
}

/// Numbers with their thousands apart, everything else as it is.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) => number.as_u64().map_or_else(|| number.to_string(), thousands),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(harness: &'static str, report: Value, minutes: f64) -> Report {
        Report::new(vec![Seen { name: harness, report }], minutes, Duration::from_secs(1))
    }

    #[test]
    fn a_violation_and_a_survivor_are_wrong() {
        let found = report("world", json!({ "figures": {}, "violations": ["lost"] }), 1.0);
        assert_eq!(found.wrong(), ["world: lost"]);
        assert!(found.verdict().is_err());
        let mutants =
            json!([{ "name": "no-fence", "found": null }, { "name": "row-last", "found": "twice" }]);
        assert_eq!(
            report("mutants", json!({ "mutants": mutants }), 1.0).wrong(),
            ["mutant survived: no-fence"]
        );
    }

    #[test]
    fn every_planted_bug_is_looked_for_by_somebody_and_no_other() {
        let mutant = |name: &str| json!({ "name": name, "found": "lost" });
        let world = json!({ "mutants": [mutant("a")], "planted": ["a", "b"] });
        let suite = |name: &str| Seen { name: "suite", report: json!({ "mutants": [mutant(name)] }) };
        let with = |suite| {
            let seen = vec![Seen { name: "mutants", report: world.clone() }, suite];
            Report::new(seen, 1.0, Duration::from_secs(1)).wrong()
        };
        assert_eq!(with(suite("b")), Vec::<String>::new());
        assert_eq!(with(suite("c")), ["mutant that nobody looks for: b", "mutant that is not there: c"]);
    }

    #[test]
    fn a_harness_that_breaks_hides_nothing_and_is_wrong() {
        let found = Seen { name: "world", report: json!({ "figures": {}, "violations": ["lost"] }) };
        let broken = |name| Seen::broken(name, &std::io::Error::other("gone"));
        let report = Report::new(vec![found, broken("kills")], 1.0, Duration::from_secs(1));
        assert_eq!(report.wrong(), ["world: lost", "kills: broken: gone"]);
        let survivor = json!({ "mutants": [{ "name": "a", "found": null }], "planted": ["a", "b"] });
        let other = Seen { name: "mutants", report: survivor };
        let report = Report::new(vec![broken("mutants"), other], 1.0, Duration::from_secs(1));
        let expected = ["mutants: broken: gone", "mutant survived: a", "mutant that nobody looks for: b"];
        assert_eq!(report.wrong(), expected, "of the other process of that name either");
    }

    #[test]
    fn goals_count_only_in_the_time_they_are_meant_for() {
        let few = json!({ "figures": { "kills": 1_999 }, "violations": [] });
        assert!(report("kills", few.clone(), 9.0).wrong().is_empty());
        let missed = report("kills", few, 10.0).wrong();
        assert!(missed.contains(&"goal missed: kills, kills: 1 999 of 2 000".to_owned()), "{missed:?}");
    }

    #[test]
    fn two_processes_of_a_harness_are_one_line() {
        let half = |text: &str| json!({ "figures": { "seeds": 20 }, "violations": [text], "mutants": [] });
        let seen = ["lost", "twice"].map(|text| Seen { name: "world", report: half(text) });
        let report = Report::new(seen.into(), 1.0, Duration::from_secs(1));
        assert_eq!(report.wrong(), ["world: lost", "world: twice"]);
        assert!(report.text().contains("40"), "{}", report.text());
    }

    #[test]
    fn figures_are_shown_with_their_goals() {
        let many = report("kills", json!({ "figures": { "kills": 2_345_678 } }), 10.0).text();
        assert!(many.contains("2 345 678  (goal 2 000)"), "{many}");
    }
}
