//! What is sent: 256 bytes of JSON with a number in it, and the time by a clock that all processes share.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use twobox::Signal;

pub(crate) const SHOP: &str = "shop";
pub(crate) const BILLING: &str = "billing";

/// The user's rows, on either side.
pub(crate) const CREATE_ORDERS: &str =
    "CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT NOT NULL, total INTEGER NOT NULL)";
pub(crate) const INSERT_ORDER: &str = "INSERT INTO orders (number, customer, total) VALUES (?1, ?2, ?3)";
pub(crate) const COUNT_ORDERS: &str = "SELECT count(*) FROM orders";

/// Numbers begin here, so that all of them have the same length.
pub(crate) const FIRST_NUMBER: i64 = 1_000_000_000;
const NUMBER_DIGITS: usize = 10;

/// What fills an order up to 256 bytes.
const NOTE: usize = 256 - r#"{"number":1000000000,"customer":"somebody","total":4200,"note":""}"#.len();

/// Something that was ordered. The number comes first, where it is found without parsing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: i64,
    pub(crate) customer: String,
    pub(crate) total: i64,
    note: String,
}

impl Signal for Order {
    const NAME: &'static str = "OrderPlaced";
}

impl Order {
    pub(crate) fn new(number: i64) -> Self {
        Self { number, customer: "somebody".into(), total: 4_200, note: "x".repeat(NOTE) }
    }

    /// The number of the order in a payload.
    pub(crate) fn number_in(payload: &[u8]) -> Option<u64> {
        let digits = payload.strip_prefix(br#"{"number":"#)?.get(..NUMBER_DIGITS)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

/// Microseconds of the machine's monotonic clock, which is the same in all processes.
pub(crate) fn micros() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or_default() * 1_000_000 + nanos.unwrap_or_default() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_256_bytes_and_a_number_in_its_place() {
        let message = Order::new(FIRST_NUMBER + 7).to(BILLING).unwrap();
        assert_eq!(message.payload.len(), 256);
        assert_eq!(Order::number_in(message.payload.as_bytes()), Some(1_000_000_007));
        assert_eq!(Order::number_in(b"{}"), None);
    }
}
