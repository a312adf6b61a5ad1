//! The geometry of a mounted volume, which grows.
//!
//! A resize publishes a new [`Geometry`]. It differs from the one before in the numbers of blocks,
//! groups and inodes, and in the places of descriptors of new groups; what describes a block or an
//! inode of the volume never changes. So a reader may use an older geometry for blocks that it
//! knows. Older ones stay in memory until the unmount (200 bytes each), so a reader takes no lock
//! and no reference count. A volume that was not resized has one more branch to predict.

use super::appended::Appended;
use ext4_format::geometry::Geometry;
use std::ops::Deref;
use sync::atomic::{AtomicBool, Ordering};

/// The current geometry.
pub(crate) struct LiveGeometry {
    at_mount: Geometry,
    /// Whether there is a later one.
    grown: AtomicBool,
    later: Appended<Geometry>,
}

impl LiveGeometry {
    pub fn new(at_mount: Geometry) -> LiveGeometry {
        LiveGeometry {
            at_mount,
            grown: AtomicBool::new(false),
            later: Appended::default(),
        }
    }

    /// Makes `geo` the current geometry. The caller excludes other resizes, and has published the
    /// groups.
    pub(super) fn publish(&self, geo: Geometry) {
        debug_assert!(geo.groups >= self.groups && geo.blocks_count >= self.blocks_count);
        self.later.append(geo);
        self.grown.store(true, Ordering::Release);
    }
}

impl Deref for LiveGeometry {
    type Target = Geometry;

    fn deref(&self) -> &Geometry {
        match self.grown.load(Ordering::Acquire) {
            false => &self.at_mount,
            true => self.later.last().unwrap_or(&self.at_mount),
        }
    }
}
