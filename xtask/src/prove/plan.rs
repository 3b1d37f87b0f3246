//! Who runs when, and for how long.

use super::build::Programs;
use super::job::Job;
use super::lanes::Lane;

/// Phases of lanes. The shares are percent of the time; what is killed needs both processors for itself.
pub(crate) fn phases(programs: &Programs, minutes: f64) -> Vec<Vec<Lane>> {
    let seconds = |share: f64| format!("{:.0}", (share * minutes * 0.6).max(1.0));
    let plain = |name, arguments: &[&str]| Job::new(name, &programs.plain, arguments);
    let world_seconds = seconds(47.0);
    let world = |first| ["world", "--seconds", &world_seconds, "--first", first, "--every", "2"];
    let twobox = programs.twobox.to_string_lossy().into_owned();
    vec![
        vec![
            vec![plain("powercut", &["powercut", "--seconds", &seconds(36.0)])],
            vec![
                Job::new("schedules", &programs.schedules, &["schedules", "--seconds", &seconds(6.0)]),
                Job::new("fuzz", &programs.xtask, &["fuzz", "--seconds", &seconds(24.0), "--json"]),
                plain("model", &["model"]),
            ],
        ],
        // Two processes: in one, two worlds would wait for the lock of SQLite's page cache.
        ["0", "1"].map(|first| vec![plain("world", &world(first))]).into(),
        vec![vec![plain("kills", &["kills", "--seconds", &seconds(10.5), "--program", &twobox])]],
        programs.mutants.iter().map(|program| vec![Job::new("mutants", program, &["mutants"])]).collect(),
    ]
}
