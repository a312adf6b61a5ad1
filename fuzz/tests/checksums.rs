//! A correction of correct checksums changes nothing: the fuzzer computes each of them as the
//! engine does.

use fuzz::bases;
use fuzz::checksums;
use fuzz::cow::Cow;

#[test]
fn correct_checksums_stay() {
    for (nth, base) in bases::all().iter().enumerate() {
        let device = Cow::new(&base.image);
        for &block in &base.targets {
            device.edit(block, |_| {});
        }
        checksums::correct(&device, base);
        for (block, bytes) in device.snapshot() {
            let at = block as usize * fuzz::cow::BLOCK;
            let original = &base.image[at..at + fuzz::cow::BLOCK];
            let differs = bytes.iter().zip(original).position(|(new, old)| new != old);
            assert_eq!(
                differs, None,
                "base {nth}, block {block}: {:?}",
                base.roles[&block]
            );
        }
    }
}
