//! Growth of the mounted volume.

use super::{Scenario, join, start};
use crate::model::Rule;
use crate::volume::{File, Mounting, Volume};
use std::time::Duration;
use testkit::seed::Rng;
use testkit::volume::any_sync;

const PAGE: usize = 8;

pub fn all() -> Vec<Scenario> {
    vec![Scenario {
        name: "grow",
        about: "the volume grows beside writes, unlinks and fsyncs that fill the log",
        // So little memory that a few blocks that are not home start a checkpoint.
        mounting: |rng| Mounting {
            memory: *rng.pick(&[48 << 10, 16 << 20]),
            commit_interval: Duration::from_millis(*rng.pick(&[50, 5000])),
            ..Mounting::default()
        },
        body,
    }]
}

/// The end of the device makes the last group larger; with blocks of 1 KiB it adds one.
fn body(volume: &Volume, rng: &mut Rng) {
    let files: Vec<File> = volume.prepare(|| {
        let files = ["a", "b"].map(|name| volume.create(name, Rule::Sectors));
        volume.sync();
        files.into()
    });
    let threads = files.into_iter().zip(0..).map(|(file, number)| {
        let mut rng = rng.fork();
        start(volume, "writes", move |volume| {
            for round in 0..3 {
                volume.append(&file, (1 + rng.index(4)) * PAGE);
                volume.fsync(&file, any_sync(&mut rng));
                let name = format!("new{number}-{round}");
                let new = volume.create(&name, Rule::Sectors);
                volume.write(&new, 0, PAGE);
                match rng.below(3) {
                    0 => volume.unlink(&new, &name),
                    1 => volume.fsync(&new, any_sync(&mut rng)),
                    _ => {}
                }
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    volume.grow();
    join(threads);
}
