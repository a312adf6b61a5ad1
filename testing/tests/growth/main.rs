//! Growth of volumes. e2fsck finds the grown volume clean, resize2fs has nothing to do, and the
//! kernel mounts it and fills the new space. Growth beside other operations, and crashes in it.

mod crash;
mod online;
mod table;

use ext4::Fs;
use std::path::Path;
use std::sync::Arc;
use testkit::needs::run;
use testkit::oracle::{assert_clean, e2fsck, text};
use testkit::volume::open;

/// Grows a mounted volume. Progress never goes back.
fn grow(fs: &Arc<Fs>, size: Option<u64>) -> ext4::Result<u64> {
    let mut last = 0;
    fs.resize(size, &mut |progress| {
        assert!(progress.blocks > last && progress.blocks <= progress.target);
        last = progress.blocks;
    })
}

/// Asserts that the volume is sound by e2fsck and by our checker, and fills its device by
/// resize2fs's rule.
fn assert_grown(image: &Path, name: &str) {
    assert_clean(image, name);
    let report = check::check(&open(image), &check::Options::default(), &mut ()).unwrap();
    assert!(report.is_clean(), "{name}: {report:?}");
    // resize2fs wants a check that is newer than the last mount.
    let (code, said) = e2fsck(image, "-fp");
    assert_eq!(code, 0, "{name}: {said}");
    let (code, said) = run("resize2fs", &[text(image)]);
    assert!(
        code == 0 && said.contains("Nothing to do"),
        "{name}: resize2fs ({code}): {said}"
    );
}
