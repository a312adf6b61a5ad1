//! Hard links that several threads make and remove.

mod common;

use common::{Image, can_mount};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const ROUNDS: usize = 3000;

/// While the kernel handles the removal of one link, it gets the attributes of the file.
fn a_file_can_be_linked_while_its_other_links_are_removed(options: &str) {
    let mounted = Image::new(64).mount(options);
    let base = mounted.dir().join("base");
    fs::write(&base, "contents").unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let linkers: Vec<_> = (0..4)
            .map(|number| {
                let (base, dir) = (&base, mounted.dir());
                scope.spawn(move || {
                    let (link, other) = (
                        dir.join(format!("{number}")),
                        dir.join(format!("{number}x")),
                    );
                    for round in 0..ROUNDS {
                        fs::hard_link(base, &link).unwrap_or_else(|e| panic!("round {round}: {e}"));
                        if round % 3 == 0 {
                            // A rename over the name removes a link, too.
                            File::create(&other).unwrap();
                            fs::rename(&other, &link).unwrap();
                        }
                        fs::remove_file(&link).unwrap();
                        let links = fs::metadata(base).unwrap().nlink();
                        assert!((1..=4).contains(&links), "{links} links");
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let file = File::open(&base).unwrap();
                assert_ne!(file.metadata().unwrap().nlink(), 0);
            }
        });
        let ends: Vec<_> = linkers.into_iter().map(|linker| linker.join()).collect();
        over.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    assert_eq!(fs::metadata(&base).unwrap().nlink(), 1);
    mounted.unmount_and_compare();
}

#[test]
fn links_over_dev_fuse() {
    if can_mount() {
        a_file_can_be_linked_while_its_other_links_are_removed("transport=dev");
    }
}

#[test]
fn links_over_io_uring() {
    if can_mount() {
        a_file_can_be_linked_while_its_other_links_are_removed("transport=auto");
    }
}
