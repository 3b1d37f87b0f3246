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
    let parts: Vec<Bounds> = bounds.each().collect();
    let (mut states, mut unique, mut violations) = (0, 0, Vec::new());
    for (at, part) in parts.iter().enumerate() {
        progress(at as f64 / parts.len() as f64, &format!("{unique} states"));
        let seen = model::check(part, None);
        states += seen.states;
        unique += seen.unique;
        violations.extend(seen.violation.map(|violation| violation.to_string()));
    }
    let short = Bounds::short();
    let missed =
        Variant::ALL.iter().filter(|variant| model::check(&short, Some(**variant)).violation.is_none());
    violations.extend(missed.map(|variant| format!("the broken variant {variant:?} is not noticed")));
    Ok(Report::default()
        .figure("states", u64::try_from(states)?)
        .figure("unique states", u64::try_from(unique)?)
        .figure("broken variants noticed", Variant::ALL.len() as u64)
        .note("bounds", bounds.to_string())
        .violations(violations))
}
