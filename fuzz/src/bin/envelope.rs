//! Fuzzes `envelope`.
#![no_main]

twobox_fuzz::fuzz!(ENVELOPE);
