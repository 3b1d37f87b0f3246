//! What shop tells billing, and what both have to agree on.

use serde::{Deserialize, Serialize};
use twobox::Signal;
use twobox::signing::Keyring;

use crate::Result;

/// The service that places orders.
pub(super) const SHOP: &str = "shop";
/// The service that writes invoices.
pub(super) const BILLING: &str = "billing";

/// What the ids of messages about orders begin with.
pub(super) const ORDER: &str = "order-";

/// Holds the secret both sign with; made anew for every demonstration.
pub(super) const SECRET: &str = "TWOBOX_DEMO_SECRET";

/// An order was placed.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct OrderPlaced {
    pub(super) order: i64,
    pub(super) cents: i64,
}

impl Signal for OrderPlaced {
    const NAME: &'static str = "OrderPlaced";
}

/// The keys both hold.
pub(super) fn keyring() -> Result<Keyring> {
    let secret = std::env::var(SECRET).map_err(|_| "only `twobox demo` starts this service")?;
    Ok(Keyring::of("demo", secret.as_bytes())?)
}
