//! Programs that tests start as processes of their own.

use std::path::{Path, PathBuf};

/// The path of an example of the package under test, which `cargo test` builds beside the tests.
///
/// # Panics
/// If it was not built: `cargo test --test NAME` leaves examples out.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test knows its program");
    let folder = test.parent().and_then(Path::parent).expect("tests are in a folder of the build folder");
    let program = folder.join("examples").join(name);
    let remedy =
        "plain `cargo test` builds it, otherwise `cargo build --examples` with the same features does";
    assert!(program.exists(), "{} is missing: {remedy}", program.display());
    program
}
