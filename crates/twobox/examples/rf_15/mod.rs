//! What shop and billing have to agree on, and how both say why they end.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use twobox::signing::{Key, KeyId, Keyring, SecretKey};
use twobox::{BoxError, Signal};

/// The service that places orders.
pub(crate) const SHOP: &str = "shop";
/// The service that writes invoices.
pub(crate) const BILLING: &str = "billing";

/// An order was placed.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct OrderPlaced {
    pub(crate) order: i64,
}

impl Signal for OrderPlaced {
    const NAME: &'static str = "OrderPlaced";
}

/// The key both hold. It protects nothing: both ends are processes of one test.
pub(crate) fn keyring() -> Result<Keyring, BoxError> {
    let key = Key::new(KeyId::new("rf-15")?, SecretKey::new(&[15; 32])?);
    Ok(Keyring::new([key])?)
}

/// An error with its kind in front, as the test reads it.
pub(crate) fn describe(error: &BoxError) -> String {
    let known = error.downcast_ref::<twobox::Error>();
    known.map_or_else(|| error.to_string(), |known| format!("{:?}: {}", known.kind(), known.chain()))
}

/// Ends the program; what went wrong is the last line it prints.
pub(crate) fn end(result: &Result<(), BoxError>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    println!("failed {}", describe(error));
    ExitCode::FAILURE
}
