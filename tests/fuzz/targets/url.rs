#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| citetap_fuzz::link::run(data));
fuzz_mutator!(|data: &mut [u8], size: usize, max: usize, seed: u32| {
    citetap_fuzz::mutate::line(data, size, max, seed)
});
