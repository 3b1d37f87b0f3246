//! Crash images and failing calls, on as many threads as asked.

use twobox_core::BoxError;

use super::options::Options;
use super::{Report, Time};
use crate::powercut::{self, Case, Syncs, Tally};

pub(super) fn run(arguments: &[String]) -> Result<Report, BoxError> {
    if arguments.first().is_some_and(|first| first == "--side") {
        let violations = powercut::replay(&Case::from_args(arguments.iter().cloned())?)?;
        return Ok(Report::default().figure("cases", 1).violations(violations));
    }
    let mut options = Options::read(arguments)?;
    if let Some(seed) = options.take("--copies")? {
        options.end()?;
        let (tally, violations) = powercut::check_copies(seed, Syncs::Right, &|| false)?;
        return Ok(Report::default().figure("images", tally.images).violations(violations));
    }
    let (given, seeds) = options.extent()?;
    let time = Time::new(given);
    let first: u64 = options.take("--first")?.unwrap_or(0);
    options.end()?;
    let mut tell = |tally: &Tally| time.tell(&format!("{} images", tally.images));
    let (tally, violations) = powercut::campaign((first..).take(seeds), &|| time.is_up(), &mut tell)?;
    Ok(Report::default()
        .figure("images", tally.images)
        .figure("images with an acknowledged message", tally.acknowledged)
        .violations(violations))
}
