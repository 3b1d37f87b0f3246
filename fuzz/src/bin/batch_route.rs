//! Fuzzes `batch_route`.
#![no_main]

twobox_fuzz::fuzz!(BATCH_ROUTE);
