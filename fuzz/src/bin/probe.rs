//! Fuzzes `probe`.
#![no_main]

twobox_fuzz::fuzz!(PROBE);
