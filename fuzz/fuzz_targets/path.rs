//! The fuzzer's way into `targets::path`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fencegate_fuzz::targets::path::check(data));
