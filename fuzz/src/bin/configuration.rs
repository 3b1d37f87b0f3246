//! Fuzzes `configuration`.
#![no_main]

twobox_fuzz::fuzz!(CONFIGURATION);
