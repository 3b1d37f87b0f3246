//! Input that nobody meant well, for everything that reads input from outside.
//!
//! A target takes any bytes and says whether a promise was broken: a panic, a limit that did not hold, something that
//! was taken for signed although nobody signed it, a refusal where there should be none. Some of its inputs are read
//! as they are; others are instructions for tampering with an honest, signed message, because no fuzzer will ever guess
//! a signature.
//!
//! The same targets run in two ways: in the tests over the committed corpus and a number of seeded mutations, and
//! guided by coverage in the binaries under `fuzz/`, which `cargo xtask fuzz` builds and runs.

mod answer;
mod batch_route;
mod configuration;
mod edit;
mod envelope;
mod exchange;
mod feed;
mod post;
mod probe;
mod run;
mod signature;

pub use self::run::{Finding, Runner, Tally, mutate, mutate_run, replay_corpus};

use twobox_core::BoxError;

/// What a target does with an input.
type Check = Box<dyn FnMut(&[u8]) -> Result<(), BoxError>>;

/// Something that reads input from outside, and what must hold whatever it reads.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also that of its corpus and of its binary.
    pub name: &'static str,
    open: fn() -> Result<Check, BoxError>,
    seeds: fn() -> Result<Vec<Vec<u8>>, BoxError>,
}

macro_rules! targets {
    ($($(#[$doc:meta])* $constant:ident = $module:ident;)*) => {
        $(
            $(#[$doc])*
            pub const $constant: Target =
                Target { name: stringify!($module), open: $module::open, seeds: $module::seeds };
        )*

        /// Every target. Whoever needs one only names its constant, and nothing of the others is linked.
        #[must_use]
        pub fn targets() -> Vec<Target> {
            vec![$($constant),*]
        }
    };
}

targets! {
    /// Envelopes and batches: read within their limits, written, and read again.
    ENVELOPE = envelope;
    /// Signatures: what was not signed by its source is not believed, and no two requests look alike to a key.
    SIGNATURE = signature;
    /// What stands in heads: probes, instants, names, headers.
    PROBE = probe;
    /// Answers: one that was tampered with acknowledges nothing.
    ANSWER = answer;
    /// What users configure: refused, or workable.
    CONFIGURATION = configuration;
    /// The whole way from bytes to rows: HTTP, limits, signatures, receiver, store.
    BATCH_ROUTE = batch_route;
}

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    targets().into_iter().find(|target| target.name == name)
}

impl Target {
    /// Inputs to start from: honest ones of every kind.
    ///
    /// # Errors
    /// If they cannot be made, which no input can cause.
    pub fn seeds(&self) -> Result<Vec<Vec<u8>>, BoxError> {
        (self.seeds)()
    }
}

/// A broken promise, unless `holds`.
fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), BoxError> {
    if holds { Ok(()) } else { Err(text().into()) }
}
