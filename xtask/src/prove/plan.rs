//! Who runs when, and for how long.

use super::build::Programs;
use super::job::Job;
use super::lanes::Lane;

/// Phases of lanes. The shares are those of ten minutes; what is killed needs both processors for itself.
pub(crate) fn phases(programs: &Programs, minutes: f64) -> Vec<Vec<Lane>> {
    let seconds = |share: f64| format!("{:.0}", (share * minutes * 6.0).max(1.0));
    let plain = |name, arguments: &[&str]| Job::new(name, &programs.plain, arguments);
    let twobox = programs.twobox.to_string_lossy().into_owned();
    vec![
        vec![
            vec![plain("powercut", &["powercut", "--seconds", &seconds(50.0)])],
            vec![
                plain("world", &["world", "--seconds", &seconds(25.0)]),
                Job::new("schedules", &programs.schedules, &["schedules", "--seconds", &seconds(17.0)]),
                plain("model", &["model"]),
            ],
        ],
        vec![vec![plain("kills", &["kills", "--seconds", &seconds(22.0), "--program", &twobox])]],
        vec![
            vec![Job::new("fuzz", &programs.xtask, &["fuzz", "--seconds", &seconds(20.0), "--json"])],
            programs.mutants.iter().map(|program| Job::new("mutants", program, &["mutants"])).collect(),
        ],
    ]
}
