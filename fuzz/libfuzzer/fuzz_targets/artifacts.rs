#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| gramary_fuzz::artifacts(data));
