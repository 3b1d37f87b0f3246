//! Fuzzes `signature`.
#![no_main]

twobox_fuzz::fuzz!(SIGNATURE);
