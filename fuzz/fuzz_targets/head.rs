//! The fuzzer's way into `targets::head`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fencegate_fuzz::targets::head::check(data));
