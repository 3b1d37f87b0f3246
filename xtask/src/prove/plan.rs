//! Who runs when, and for how long.

use super::build::Programs;
use super::job::Job;
use super::lanes::Lane;

/// Phases of lanes. The shares are percent of the time; what is killed needs both processors for itself.
pub(crate) fn phases(programs: &Programs, minutes: f64) -> Vec<Vec<Lane>> {
    let seconds = |share: f64| format!("{:.0}", (share * minutes * 0.6).max(1.0));
    let plain = |name, arguments: &[&str]| Job::new(name, &programs.plain, arguments);
    let twobox = programs.twobox.to_string_lossy().into_owned();
    vec![
        vec![
            vec![plain("powercut", &["powercut", "--seconds", &seconds(38.0)])],
            vec![
                Job::new("schedules", &programs.schedules, &["schedules", "--seconds", &seconds(15.0)]),
                Job::new("fuzz", &programs.xtask, &["fuzz", "--seconds", &seconds(18.0), "--json"]),
                plain("model", &["model"]),
            ],
        ],
        vec![vec![plain("world", &["world", "--seconds", &seconds(36.0), "--threads", "2"])]],
        vec![vec![plain("kills", &["kills", "--seconds", &seconds(9.0), "--program", &twobox])]],
        programs.mutants.iter().map(|program| vec![Job::new("mutants", program, &["mutants"])]).collect(),
    ]
}
