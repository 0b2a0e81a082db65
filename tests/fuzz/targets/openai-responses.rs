#![no_main]

use citetap::provider::openai_responses::PROVIDER;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| citetap_fuzz::adapter::run(PROVIDER, data));
fuzz_mutator!(|data: &mut [u8], size: usize, max: usize, seed: u32| {
    citetap_fuzz::mutate::frames(data, size, max, seed)
});
