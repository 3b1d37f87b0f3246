//! Two lanes of jobs side by side, each one job after the other.

use std::thread;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::job::{Job, Seen};
use crate::Result;

/// Steps of a bar.
const STEPS: u64 = 1_000;

/// Jobs, one after the other.
pub(crate) type Lane = Vec<Job>;

/// Runs the lanes side by side. A job that breaks is something wrong that was seen: it takes nothing away from what the
/// others have seen.
///
/// # Errors
/// If a lane itself breaks.
pub(crate) fn run(lanes: Vec<Lane>) -> Result<Vec<Seen>> {
    let bars = MultiProgress::new();
    let running: Vec<_> = lanes
        .into_iter()
        .map(|lane| {
            let bars = bars.clone();
            thread::spawn(move || lane.iter().map(|job| watched(job, &bars)).collect::<Vec<_>>())
        })
        .collect();
    let mut seen = Vec::new();
    for lane in running {
        seen.extend(lane.join().map_err(|_| "a lane panicked")?);
    }
    Ok(seen)
}

fn watched(job: &Job, bars: &MultiProgress) -> Seen {
    let bar = bars.add(ProgressBar::new(STEPS));
    if let Ok(style) = ProgressStyle::with_template("{prefix:10} {bar:30} {elapsed:>4} {wide_msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(job.name);
    let seen = job.run(|part, text| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of one")]
        bar.set_position((part.clamp(0.0, 1.0) * STEPS as f64) as u64);
        bar.set_message(text.to_owned());
    });
    bar.finish();
    seen.unwrap_or_else(|error| Seen::broken(job.name, &*error))
}
