//! The fuzzer's way into `targets::config`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fencegate_fuzz::targets::config::check(data));
