//! Discards of free blocks. The device overwrites what is discarded.

use super::{Scenario, join, start};
use crate::model::Rule;
use crate::volume::{File, Mounting, Volume};
use std::time::Duration;
use sync::thread;
use testkit::seed::Rng;
use testkit::volume::any_sync;

const PAGE: usize = 8;

pub fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "discards",
        about: "trims and the discard of freed blocks, beside writes that allocate them again",
        mounting: |rng| Mounting {
            discard: rng.one_in(2),
            commit_interval: Duration::from_millis(*rng.pick(&[50, 500])),
            background: Some(8 << 10),
            ..Mounting::default()
        },
        body,
    }]
}

fn body(volume: &Volume, rng: &mut Rng) {
    let files: Vec<File> = volume.prepare(|| {
        let files = ["a", "b"].map(|name| volume.create(name, Rule::Sectors));
        for file in &files {
            volume.write(file, 0, 4 * PAGE);
        }
        volume.sync();
        files.into()
    });
    let writers = files.into_iter().map(|file| {
        let mut rng = rng.fork();
        start(volume, "writer", move |volume| {
            for _ in 0..5 {
                match rng.below(3) {
                    0 => volume.truncate(&file, rng.index(2) * PAGE),
                    1 => volume.punch(&file, rng.index(3) * PAGE, PAGE),
                    _ => {}
                }
                volume.write(&file, rng.index(4) * PAGE, 2 * PAGE);
                if rng.one_in(2) {
                    volume.fsync(&file, any_sync(&mut rng));
                }
                volume.fs().drop_caches();
                volume.read_back(&file);
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut fork = rng.fork();
    let trims = start(volume, "trims", move |volume| {
        for _ in 0..3 {
            // With `-o discard` the flusher discards, too.
            if fork.one_in(3) {
                thread::sleep(Duration::from_millis(500 * (1 + fork.below(12))));
            } else {
                volume.trim();
            }
        }
    });
    join(writers.into_iter().chain([trims]));
}
