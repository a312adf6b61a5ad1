#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::codecs::dir_entry(data));
