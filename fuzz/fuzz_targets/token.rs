//! The fuzzer's way into `targets::token`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fencegate_fuzz::targets::token::check(data));
