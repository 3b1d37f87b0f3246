//! Fuzzes `answer`.
#![no_main]

twobox_fuzz::fuzz!(ANSWER);
