//! The model, within its full bounds or its short ones.

use twobox_core::BoxError;

use super::{Report, progress};
use crate::model::{self, Bounds, Variant};

pub(super) fn run(arguments: &[String]) -> Result<Report, BoxError> {
    let bounds = match arguments {
        [] => Bounds::full(),
        [short] if short == "--short" => Bounds::short(),
        _ => return Err("the model has one option: --short".into()),
    };
    progress(0.0, "every rule switched off in turn");
    let short = Bounds::short();
    let is_missed = |variant: &&Variant| model::check(&short, Some(**variant)).violation.is_none();
    let missed = Variant::ALL.iter().filter(is_missed);
    let missed: Vec<_> =
        missed.map(|variant| format!("nobody misses the rule that {variant:?} breaks")).collect();
    progress(0.2, "every interleaving");
    let seen = model::check(&bounds, None);
    Ok(Report::default()
        .figure("states", u64::try_from(seen.states)?)
        .figure("unique states", u64::try_from(seen.unique)?)
        .figure("broken variants noticed", (Variant::ALL.len() - missed.len()) as u64)
        .note("bounds", bounds.to_string())
        .violations(seen.violation)
        .violations(missed))
}
