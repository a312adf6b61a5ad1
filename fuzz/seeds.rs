//! Writes the first inputs. Code that is built for libFuzzer links only with it, so this program
//! has the form of a target.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::seeds::write(), |_data: &[u8]| {});
