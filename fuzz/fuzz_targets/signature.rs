//! The fuzzer's way into `targets::signature`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fencegate_fuzz::targets::signature::check(data));
