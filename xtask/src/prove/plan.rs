//! Who runs when, and for how long.

use super::build::Programs;
use super::job::Job;
use super::lanes::Lane;

/// Percent of the time that both lanes of the first phase have. The rest is for kills and planted bugs.
const LANES: f64 = 85.5;
const POWERCUT: f64 = 32.0;
const SCHEDULES: f64 = 8.2;
const FUZZ: f64 = 24.0;
/// What the model takes on two processors; it is told no time.
const MODEL: f64 = 6.0;
const KILLS: f64 = 7.5;

/// Phases of lanes. What is killed needs both processors for itself.
pub(crate) fn phases(programs: &Programs, minutes: f64) -> Vec<Vec<Lane>> {
    let seconds = |share: f64| format!("{:.0}", (share * minutes * 0.6).max(1.0));
    let plain = |name, arguments: &[&str]| Job::new(name, &programs.plain, arguments);
    // The world takes what is left of each lane. Two processes: in one, two worlds would wait for the lock of SQLite's
    // page cache.
    let world = |first: &str, taken: f64| {
        let seconds = seconds(LANES - taken);
        plain("world", &["world", "--seconds", &seconds, "--first", first, "--every", "2"])
    };
    let twobox = programs.twobox.to_string_lossy().into_owned();
    vec![
        vec![
            vec![plain("powercut", &["powercut", "--seconds", &seconds(POWERCUT)]), world("0", POWERCUT)],
            vec![
                Job::new("schedules", &programs.schedules, &["schedules", "--seconds", &seconds(SCHEDULES)]),
                Job::new("fuzz", &programs.xtask, &["fuzz", "--seconds", &seconds(FUZZ), "--json"]),
                plain("model", &["model"]),
                world("1", SCHEDULES + FUZZ + MODEL),
            ],
        ],
        vec![vec![plain("kills", &["kills", "--seconds", &seconds(KILLS), "--program", &twobox])]],
    ]
}

/// Planted bugs, as the harnesses ship and on the scheduler.
pub(crate) fn mutants(programs: &Programs) -> Vec<Lane> {
    programs.mutants.iter().map(|program| vec![Job::new("mutants", program, &["mutants"])]).collect()
}
