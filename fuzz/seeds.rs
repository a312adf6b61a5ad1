//! Writes the first inputs. Code that is built for libFuzzer links with it alone, so this looks
//! like a target.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::seeds::write(), |_data: &[u8]| {});
