//! Coverage-guided runs of the targets in `twobox_proof::fuzz`: one binary each.

/// The `main` of a target's binary.
#[macro_export]
macro_rules! fuzz {
    ($target:ident) => {
        std::thread_local! {
            // Never dropped: libFuzzer ends the process, and a runtime does not like to be dropped on the way out.
            static RUNNER: std::mem::ManuallyDrop<std::cell::RefCell<twobox_proof::fuzz::Runner>> = {
                let runner = twobox_proof::fuzz::$target.start().expect("it can be set up");
                std::mem::ManuallyDrop::new(std::cell::RefCell::new(runner))
            };
        }
        libfuzzer_sys::fuzz_target!(|input: &[u8]| {
            if let Err(finding) = RUNNER.with(|runner| runner.borrow_mut().run(input)) {
                panic!("{finding}");
            }
        });
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            // Ours knows the formats, libFuzzer's own learns from comparisons: they take turns.
            if seed % 2 == 0 {
                libfuzzer_sys::fuzzer_mutate(data, size, max_size)
            } else {
                let max = max_size.min(data.len());
                twobox_proof::fuzz::mutate(&mut data[..max], size, seed)
            }
        });
    };
}
