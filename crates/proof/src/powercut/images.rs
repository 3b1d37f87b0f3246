//! Checking what cuts leave.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use tempfile::TempDir;
use twobox_core::{BoxError, Error, time};
use twobox_testkit::SeededRandom;
use twobox_testkit::disk::{Cut, Image, Walk};

use super::case::{Case, Violation};
use super::recover::{self, put, recover};
use super::style::Style;
use super::told::Told;
use super::workload::{Place, Run, Side, Store, Workload, folder, runtime};
use super::{billing, claims, queue, shop};

/// Every so many images the real store opens one whose state is known already, and must come to the same facts.
const DOUBLE_CHECK: u64 = 32;

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Workloads that were run.
    pub runs: u64,
    /// Calls of the disk that failed on the way.
    pub faults: u64,
    /// Different crash images: recovered by SQLite and checked.
    pub images: u64,
    /// Those among them that were made after a message had been acknowledged.
    pub acknowledged: u64,
    /// Those among them that a process kill made first.
    pub killed: u64,
    /// Those that lack everything unsynced.
    pub lost: u64,
    /// Those that lack some unsynced writes.
    pub subsets: u64,
    /// Those that lack some unsynced sectors.
    pub torn: u64,
    /// Databases opened and taken on by the real store.
    pub opened: u64,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        let Self { runs, faults, images, acknowledged, killed, lost, subsets, torn, opened } = other;
        self.runs += runs;
        self.faults += faults;
        self.images += images;
        self.acknowledged += acknowledged;
        self.killed += killed;
        self.lost += lost;
        self.subsets += subsets;
        self.torn += torn;
        self.opened += opened;
    }

    pub(super) fn count(&mut self, cut: Cut) {
        self.images += 1;
        *match cut {
            Cut::Kill => &mut self.killed,
            Cut::Lost => &mut self.lost,
            Cut::Subset => &mut self.subsets,
            Cut::Torn => &mut self.torn,
        } += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, faults, images, acknowledged, killed, lost, subsets, torn, opened } = self;
        write!(
            f,
            "{runs} runs with {faults} faults, {images} images ({acknowledged} after an acknowledgement; {killed} killed, \
             {lost} lost, {subsets} subsets, {torn} torn), {opened} opened by the store"
        )
    }
}

/// Checks every crash image of a workload: all kinds of cuts before every step, the random ones `variants` times.
/// Returns the violations it found, which must be none.
///
/// # Errors
/// If the machine fails: no folder, no runtime.
pub fn check_images(workload: &Workload, variants: u64) -> Result<(Tally, Vec<Violation>), BoxError> {
    let run = workload.run()?;
    let mut checker = Checker::new(*workload, &run)?;
    checker.check_steps(0..=run.record.len(), variants, &|| false);
    Ok(checker.finish())
}

/// How the chance of a cut is named.
pub(super) fn chance(seed: u64, step: usize, variant: u64) -> SeededRandom {
    SeededRandom::new(seed ^ (step as u64) << 20 ^ variant << 52)
}

/// All kinds of cuts, with their variants.
pub(super) fn cuts(variants: u64) -> impl Iterator<Item = (Cut, u64)> {
    let of = move |cut: Cut| if cut.is_random() { variants } else { 1 };
    Cut::ALL.into_iter().flat_map(move |cut| (0..of(cut)).map(move |variant| (cut, variant)))
}

/// What the real store finds in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Facts {
    Shop(shop::Facts),
    Billing(billing::Facts),
    Queue(queue::Facts),
    Claims(claims::Facts),
}

impl Facts {
    fn judge(&self, told: &Told) -> Result<(), String> {
        match self {
            Self::Shop(facts) => facts.judge(told),
            Self::Billing(facts) => facts.judge(told),
            Self::Queue(facts) => facts.judge(told),
            Self::Claims(facts) => facts.judge(told),
        }
    }
}

/// An image that was seen: its state, or why it has none.
struct Seen {
    state: Result<u64, String>,
    acknowledged: bool,
}

/// Checks the images of one run.
///
/// An image is recovered by SQLite. What SQLite's own check says of it and what the real store makes of it depend on the
/// state that was recovered, so they are asked once for every state, and now and then again. Whether that is enough
/// depends on what had been told before the cut, so this is compared for every cut.
pub(super) struct Checker<'a> {
    workload: Workload,
    run: &'a Run,
    folder: TempDir,
    images: HashMap<u64, Seen>,
    states: HashMap<u64, Result<Facts, String>>,
    tally: Tally,
    violations: Vec<Violation>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(workload: Workload, run: &'a Run) -> Result<Self, BoxError> {
        let faults = u64::from(run.record.failed().is_some());
        let mut checker = Self {
            workload,
            run,
            folder: folder()?,
            images: HashMap::new(),
            states: HashMap::new(),
            tally: Tally { runs: 1, faults, ..Tally::default() },
            violations: Vec::new(),
        };
        if let Some(text) = &run.trouble {
            let case = Case { workload, step: run.record.len(), cut: None, variant: 0 };
            checker.violations.push(Violation { case, text: text.clone() });
        }
        Ok(checker)
    }

    pub(super) fn finish(self) -> (Tally, Vec<Violation>) {
        (self.tally, self.violations)
    }

    /// Checks the images at these steps, which must be in order, until `stop` says so.
    pub(super) fn check_steps(
        &mut self,
        steps: impl IntoIterator<Item = usize>,
        variants: u64,
        stop: &dyn Fn() -> bool,
    ) {
        let record = &self.run.record;
        let (mut walk, mut told) = (record.walk(), Told::new(self.workload.keeps_acknowledged()));
        for step in steps {
            if stop() {
                return;
            }
            walk.go_to(step);
            told.hear(record, step);
            let different = if walk.is_durable() { 1 } else { usize::MAX };
            for (cut, variant) in cuts(variants).take(different) {
                self.check(&walk, &told, Case { workload: self.workload, step, cut: Some(cut), variant });
            }
        }
    }

    /// Checks one case.
    pub(super) fn check_case(&mut self, case: &Case) {
        let record = &self.run.record;
        let mut walk = record.walk();
        walk.go_to(case.step);
        let told = Told::new(case.workload.keeps_acknowledged()).up_to(record, case.step);
        self.check(&walk, &told, *case);
    }

    fn check(&mut self, walk: &Walk<'_>, told: &Told, case: Case) {
        let Case { workload, step, cut: Some(cut), variant } = case else { return };
        let image = walk.image(cut, &chance(workload.seed, step, variant));
        let acknowledged = told.acknowledged() > 0;
        let print = image.fingerprint();
        if !self.images.contains_key(&print) {
            self.tally.count(cut);
            let state = self.recover(&image);
            self.images.insert(print, Seen { state, acknowledged: false });
        }
        let Some(seen) = self.images.get_mut(&print) else { return };
        self.tally.acknowledged += u64::from(acknowledged && !seen.acknowledged);
        seen.acknowledged |= acknowledged;
        let state = seen.state.clone();
        let facts = state.as_ref().map_err(Clone::clone).and_then(|state| match self.states.get(state) {
            Some(facts) => facts.as_ref().map_err(Clone::clone),
            None => Err("a state was not examined".into()),
        });
        if let Err(text) = facts.and_then(|facts| facts.judge(told)) {
            self.violations.push(Violation { case, text });
        }
    }

    /// Lets SQLite recover an image, and the real store take on a state that is new.
    fn recover(&mut self, image: &Image) -> Result<u64, String> {
        put(image, self.folder.path()).map_err(|error| error.to_string())?;
        let path = self.folder.path().join(self.workload.side.file());
        let state = recover(&path)?;
        let again = self.tally.images.is_multiple_of(DOUBLE_CHECK);
        let known = self.states.get(&state);
        if known.is_some() && !again {
            return Ok(state);
        }
        recover::check(&path)?;
        self.tally.opened += 1;
        put(image, self.folder.path()).map_err(|error| error.to_string())?;
        let facts = examine(&self.workload, self.folder.path());
        match known {
            Some(known) if *known != facts => {
                Err(format!("the store finds {facts:?} in a state in which it has found {known:?}"))
            }
            _ => {
                self.states.insert(state, facts);
                Ok(state)
            }
        }
    }
}

/// Lets the real store open the files and be checked.
fn examine(workload: &Workload, folder: &Path) -> Result<Facts, String> {
    let place = Place { path: folder.join(workload.side.file()), disk: None };
    let runtime = runtime().map_err(|error| error.to_string())?;
    let calm = Workload { fault: None, ..*workload };
    let examined = runtime.block_on(async {
        let store = Store::open(&place, &calm).await?;
        store.clock.step_micros(time::micros(Style::of(workload.seed).off_for));
        Ok::<_, Error>(match workload.side {
            Side::Shop => Facts::Shop(shop::examine(&store, &calm).await?),
            Side::Billing => Facts::Billing(billing::examine(&store, &calm).await?),
            Side::Queue => Facts::Queue(queue::examine(&store, &calm).await?),
            Side::Claims => Facts::Claims(claims::examine(&store, &calm).await?),
        })
    });
    examined.map_err(|error| error.chain())
}
