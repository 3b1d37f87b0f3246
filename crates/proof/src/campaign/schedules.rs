//! Schedules of every structure, each for the same time: some take ten times as long as others.

use std::time::Duration;

use twobox_core::BoxError;

use super::options::Options;
use super::{Report, Time};
use crate::schedules::{self, Structure, Tally};

/// Schedules of one structure before the next has its turn.
const TURN: u64 = 500;

pub(super) fn run(arguments: &[String]) -> Result<Report, BoxError> {
    let mut options = Options::read(arguments)?;
    let time = Time::new(options.seconds()?);
    let first: u64 = options.take("--first")?.unwrap_or(0);
    options.end()?;
    let mut tallies = Structure::ALL.map(|structure| (structure, Tally::default()));
    let mut took = Structure::ALL.map(|_| (Duration::ZERO, first));
    let mut violations = Vec::new();
    while !time.is_up() && violations.is_empty() {
        let turns = tallies.iter_mut().zip(&mut took);
        let Some(((structure, tally), (took, seed))) = turns.min_by_key(|(_, (took, _))| *took) else {
            break;
        };
        let begun = time.passed();
        match schedules::run(*structure, TURN, *seed) {
            Ok(more) => tally.add(more),
            Err(violation) => violations.push(violation),
        }
        *took += time.passed().saturating_sub(begun);
        *seed += 1;
        time.tell(&format!("{} schedules", sum(&tallies)));
    }
    let report = Report::default().figure("schedules", sum(&tallies)).violations(violations);
    let each = |report: Report, (structure, tally): &(Structure, Tally)| {
        report.figure(&format!("schedules of {structure}"), tally.schedules)
    };
    Ok(tallies.iter().fold(report, each))
}

fn sum(tallies: &[(Structure, Tally)]) -> u64 {
    tallies.iter().map(|(_, tally)| tally.schedules).sum()
}
