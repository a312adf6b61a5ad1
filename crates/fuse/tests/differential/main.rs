//! Random calls on a mount and on the kernel's ext4: results, attributes, contents, and the times
//! that change must be the same after each call.
//!
//! A failure prints the last calls. `SLUICE_SEED` replays a seed.
//!
//! These calls are left out, since a FUSE server cannot do as ext4 does: FIEMAP, collapsing and
//! inserting ranges, offsets of lseek(2) and copy_file_range(2) above the largest file, O_DIRECT
//! that is not aligned, and writes to files that got the flag immutable or append-only after they
//! were opened. SEEK_HOLE is left out because ext4 may write zeroes instead of a hole.

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod side;

use calls::{Call, USERS, any_call};
use common::{Image, can_mount};
use side::{Seen, Side};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;
use testkit::kernel::KernelMount;
use testkit::needs::{Need, have};
use testkit::oracle::Mke2fs;
use testkit::seed::{Rng, seeds};
use testkit::volume;

/// Bytes of a volume.
const SIZE: u64 = 256 << 20;
/// Calls of each seed.
const CALLS: usize = 700;
/// Time between two calls, so that each changes times.
const TICK: Duration = Duration::from_millis(5);

fn differences<K: Ord + Debug, V: PartialEq + Debug>(
    ours: &BTreeMap<K, V>,
    kernels: &BTreeMap<K, V>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for name in ours.keys().chain(kernels.keys()) {
        let (our, their) = (ours.get(name), kernels.get(name));
        if our != their {
            lines.push(format!(
                "{name:?}\n    ours   {our:?}\n    kernel {their:?}"
            ));
        }
    }
    lines.dedup();
    lines
}

/// Makes the calls of a seed on both sides.
fn compare(ours: &mut Side, kernels: &mut Side, seed: u64) {
    let mut rng = Rng::from_seed(seed);
    let mut made = Vec::new();
    assert_eq!(ours.look(), kernels.look());
    for number in 0..CALLS {
        let call = any_call(&mut rng);
        let user = *rng.pick(USERS);
        let outcomes = (ours.call_as(user, &call), kernels.call_as(user, &call));
        made.push(format!(
            "{number} as {user:?}: {call:.200?} -> {:.80?}",
            outcomes.1
        ));
        std::thread::sleep(TICK);
        let (mut our, mut their) = (ours.look(), kernels.look());
        let failed: Option<fn(Seen) -> Seen> = match (&call, &outcomes.1) {
            (Call::WriteAt(..), Err(_)) => Some(Seen::after_failed_write),
            (Call::Fallocate(..), Err(_)) => Some(Seen::after_failed_fallocate),
            _ => None,
        };
        if let Some(after) = failed {
            for all in [&mut our, &mut their] {
                let inodes = std::mem::take(all).into_iter();
                all.extend(inodes.map(|(name, seen)| (name, after(seen))));
            }
        }
        let mut differing = differences(&our, &their);
        if outcomes.0 != outcomes.1 {
            differing.push(format!("ours returned {:.200?}", outcomes.0));
        }
        if number % 20 == 19 && ours.contents() != kernels.contents() {
            let (ours, kernels) = (ours.contents(), kernels.contents());
            let names = ours
                .iter()
                .filter(|(name, data)| kernels.get(*name) != Some(data));
            differing.push(format!(
                "contents of {:?}",
                names.map(|n| n.0).collect::<Vec<_>>()
            ));
        }
        let last = &made[made.len().saturating_sub(25)..];
        assert!(
            differing.is_empty(),
            "SLUICE_SEED={seed}: after\n{}\n{}",
            last.join("\n"),
            differing.join("\n")
        );
    }
}

#[test]
fn random_calls_have_the_results_of_the_kernel() {
    random_calls(seeds(1..=4), &of_blocks("4096"));
}

#[test]
fn random_calls_on_blocks_of_1_kib_have_the_results_of_the_kernel() {
    random_calls(seeds(5..=6), &of_blocks("1024"));
}

#[test]
fn random_calls_on_ext3_have_the_results_of_the_kernel() {
    random_calls(seeds(7..=8), &Mke2fs::of_type(SIZE, "ext3"));
}

#[test]
fn random_calls_on_ext3_with_blocks_of_1_kib_have_the_results_of_the_kernel() {
    let build = Mke2fs::of_type(SIZE, "ext3").args(&["-b", "1024"]);
    random_calls(seeds(9..=10), &build);
}

#[test]
fn random_calls_on_ext2_have_the_results_of_the_kernel() {
    random_calls(seeds(11..=12), &Mke2fs::of_type(SIZE, "ext2"));
}

fn of_blocks(bytes: &str) -> Mke2fs {
    Mke2fs::by_default(SIZE).args(&["-b", bytes])
}

fn random_calls(seeds: Vec<u64>, build: &Mke2fs) {
    if !can_mount() || !have("the kernel's ext4", &[Need::Loop]) {
        return;
    }
    for seed in seeds {
        let image = volume::Image::by_mke2fs(build);
        let kernel = KernelMount::new(&image.path());
        let mounted = Image::of(build).mount("suid,dev");
        let (mut ours, mut kernels) = (Side::new(mounted.dir()), Side::new(kernel.path()));
        compare(&mut ours, &mut kernels, seed);
        drop((ours, kernels));
        kernel.unmount();
        mounted.unmount();
    }
}
