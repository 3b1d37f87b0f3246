//! Checking what cuts leave.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use twobox_core::BoxError;
use twobox_testkit::SeededRandom;
use twobox_testkit::disk::{Cut, Image, Record};

use super::run::{Place, Side, Store, Workload, folder, runtime};
use super::{billing, shop};

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Different crash images.
    pub images: u64,
    /// Those among them that hold an acknowledged message.
    pub acknowledged: u64,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.images += other.images;
        self.acknowledged += other.acknowledged;
    }
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The workload's seed.
    pub seed: u64,
    /// Which side.
    pub side: Side,
    /// The step of the disk before which the power was cut.
    pub step: usize,
    /// How it was cut.
    pub cut: Cut,
    /// Which variant of the cut.
    pub variant: u64,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, side, step, cut, variant, text } = self;
        write!(f, "{side:?} seed {seed} step {step} {cut:?} variant {variant}: {text}")
    }
}

/// Checks every crash image of a workload: all kinds of cuts before every step, the random ones `variants` times.
/// Returns the violations it found, which must be none.
///
/// # Errors
/// If the workload itself fails.
pub fn check_images(workload: &Workload, variants: u64) -> Result<(Tally, Vec<Violation>), BoxError> {
    let record = workload.record()?;
    let folder = folder()?;
    let mut seen = HashSet::new();
    let (mut tally, mut violations) = (Tally::default(), Vec::new());
    for step in 0..=record.len() {
        let acknowledged = match workload.side {
            Side::Shop => shop::acknowledged(&record, step),
            Side::Billing => billing::acknowledged(&record, step),
        };
        for (cut, variant) in cuts(variants) {
            let chance = workload.seed ^ (step as u64) << 20 ^ variant;
            let image = record.image(step, cut, &SeededRandom::new(chance));
            if !seen.insert((image.fingerprint(), acknowledged)) {
                continue;
            }
            tally.images += 1;
            tally.acknowledged += u64::from(acknowledged > 0);
            if let Err(text) = check(workload, &record, step, &image, folder.path()) {
                let Workload { seed, side, .. } = *workload;
                violations.push(Violation { seed, side, step, cut, variant, text });
            }
        }
    }
    Ok((tally, violations))
}

fn cuts(variants: u64) -> impl Iterator<Item = (Cut, u64)> {
    Cut::ALL.into_iter().flat_map(move |cut| {
        let variants = if matches!(cut, Cut::Kill | Cut::Lost) { 1 } else { variants };
        (0..variants).map(move |variant| (cut, variant))
    })
}

/// Puts the files in place and lets the real store recover and be checked.
fn check(
    workload: &Workload,
    record: &Record,
    step: usize,
    image: &Image,
    folder: &Path,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    for entry in std::fs::read_dir(folder).map_err(text)?.flatten() {
        std::fs::remove_file(entry.path()).map_err(text)?;
    }
    for (name, bytes) in image.files() {
        let file = Path::new(name).file_name().ok_or("a file has no name")?;
        std::fs::write(folder.join(file), bytes).map_err(text)?;
    }
    let place = Place { path: folder.join(workload.side.file()), disk: None };
    runtime().map_err(text)?.block_on(async {
        let store = Store::open(&place, workload.seed, workload.durability);
        let store = store.await.map_err(|error| format!("cannot be opened: {}", error.chain()))?;
        match workload.side {
            Side::Shop => shop::check(&store, record, step).await,
            Side::Billing => billing::check(&store, record, step, workload.messages).await,
        }
    })
}
