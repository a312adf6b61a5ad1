//! The attributes of all inodes of a volume.

use crate::error::Cause;
use crate::metadata::Metadata;
use crate::volume::Volume;
use ext4::Scanned;
use std::io;
use std::ops::ControlFlow;
use units::Ino;

/// Inodes whose attributes are not known, because they are damaged or cannot be read. Behind a
/// damaged bitmap of inodes these are all numbers that may be in use.
#[derive(Debug)]
pub struct UnreadableInodes {
    /// The first inode number.
    pub first: u64,
    /// The number of inodes.
    pub count: u64,
    /// The reason, with the numbers and the device.
    pub error: io::Error,
}

impl Volume {
    /// Starts to read the inodes with these numbers, in the order of the device, for a caller that
    /// needs the attributes of some files, or opens some directories, soon. Numbers that no inode
    /// has are ignored, and errors are those of the later call.
    /// [`DirEntry::metadata`](crate::DirEntry::metadata) does this itself.
    pub fn read_inodes_ahead(&self, inos: impl IntoIterator<Item = u64>) {
        let known = |ino: u64| u32::try_from(ino).ok().map(Ino);
        self.fs()
            .read_inodes_ahead(inos.into_iter().filter_map(known));
    }

    /// Calls `each` for each inode in use, with its newest attributes, in no order and from several
    /// threads at once. This is the fastest way to the attributes of all files: inode tables are
    /// read in the order of the device, in requests of up to 1 MiB, and do not enter the cache.
    /// Names are in directories only ([`crate::Dir::read_dir`]).
    ///
    /// While others change the volume, an inode that has a name all the time is visited exactly
    /// once, with attributes that it had at one moment of the call. An inode that is created or
    /// removed meanwhile may be visited or not. Files without a name are left out, and so are the
    /// file system's own inodes but for the root directory.
    ///
    /// `each` ends the visits by `Break`; other threads may call it a last time. It may use the
    /// volume.
    ///
    /// ```
    /// use sluicefs::{FormatOptions, Volume};
    /// use std::ops::ControlFlow;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// # fn main() -> std::io::Result<()> {
    /// let volume = Volume::format("mem:64MiB", FormatOptions::new())?;
    /// for i in 0..100 {
    ///     volume.write(format!("/f{i}"), b"contents")?;
    /// }
    /// let bytes = AtomicU64::new(0);
    /// volume.inodes(|found| {
    ///     match found {
    ///         Ok(meta) if meta.is_file() => {
    ///             bytes.fetch_add(meta.len(), Ordering::Relaxed);
    ///         }
    ///         Ok(_) => {}
    ///         Err(unreadable) => eprintln!("{}", unreadable.error),
    ///     }
    ///     ControlFlow::Continue(())
    /// });
    /// assert_eq!(bytes.into_inner(), 800);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Damage and errors of the device are given to `each`, and the visits continue.
    pub fn inodes(
        &self,
        each: impl Fn(Result<Metadata, UnreadableInodes>) -> ControlFlow<()> + Sync,
    ) {
        self.fs().scan_inodes(&|scanned| {
            each(match scanned {
                Scanned::Inode(attr) => Ok(Metadata(attr)),
                Scanned::Unreadable {
                    first,
                    count,
                    error,
                } => {
                    let which = match count {
                        1 => format!("inode {first}"),
                        _ => format!("inodes {first} to {}", first + (count.max(1) - 1)),
                    };
                    let path = format!("{which} of {}", self.device());
                    Err(UnreadableInodes {
                        first: first.into(),
                        count: count.into(),
                        error: Cause::from(error).at("read", path),
                    })
                }
            })
        });
    }
}
