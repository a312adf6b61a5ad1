//! fs_mark's ways to make files durable, and three ways to call fsync.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The value of -S.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncMethod {
    /// 0: no sync.
    None,
    /// 1: fsync before each close.
    FsyncBeforeClose,
    /// 2: once all files are written, one sync, and fsync of the first file.
    SyncThenOneFsync,
    /// 3: once all files are written, open, fsync and close each, in reverse order.
    PostReverseFsync,
    /// 4: a sync, then as 3.
    SyncPostReverseFsync,
    /// 5: once all files are written, open, fsync and close each, in order of creation.
    PostFsync,
    /// 6: a sync, then as 5.
    SyncPostFsync,
}

/// How fsync is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fsync {
    /// fsync(2): the call returns when the file is durable.
    #[default]
    Blocking,
    /// Many in flight: `sync_all_async` on a volume in process, io_uring in mounted directories.
    Async,
    /// One call for all files of a thread (`Volume::sync_files`), which stay open until then. Only
    /// a volume in process has it.
    Bulk,
}

/// The files that are opened, fsynced and closed once all files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    None,
    First,
    Forward,
    Backward,
}

impl SyncMethod {
    /// All methods, in order of their numbers.
    pub const ALL: [SyncMethod; 7] = [
        SyncMethod::None,
        SyncMethod::FsyncBeforeClose,
        SyncMethod::SyncThenOneFsync,
        SyncMethod::PostReverseFsync,
        SyncMethod::SyncPostReverseFsync,
        SyncMethod::PostFsync,
        SyncMethod::SyncPostFsync,
    ];

    /// Whether each file is fsynced before it is closed.
    pub(super) fn fsyncs_in_loop(self) -> bool {
        self == SyncMethod::FsyncBeforeClose
    }

    /// Whether a sync follows the writing of all files.
    pub(super) fn syncs(self) -> bool {
        use SyncMethod::{SyncPostFsync, SyncPostReverseFsync, SyncThenOneFsync};
        matches!(
            self,
            SyncThenOneFsync | SyncPostReverseFsync | SyncPostFsync
        )
    }

    /// The files that are fsynced after that.
    pub(super) fn pass(self) -> Pass {
        match self {
            SyncMethod::None | SyncMethod::FsyncBeforeClose => Pass::None,
            SyncMethod::SyncThenOneFsync => Pass::First,
            SyncMethod::PostReverseFsync | SyncMethod::SyncPostReverseFsync => Pass::Backward,
            SyncMethod::PostFsync | SyncMethod::SyncPostFsync => Pass::Forward,
        }
    }
}

impl FromStr for Fsync {
    type Err = String;
    fn from_str(text: &str) -> Result<Fsync, String> {
        match text {
            "blocking" => Ok(Fsync::Blocking),
            "async" => Ok(Fsync::Async),
            "bulk" => Ok(Fsync::Bulk),
            _ => Err("fsync is blocking, async or bulk".to_owned()),
        }
    }
}

impl FromStr for SyncMethod {
    type Err = String;
    fn from_str(text: &str) -> Result<SyncMethod, String> {
        let number: Option<usize> = text.parse().ok();
        number
            .and_then(|n| SyncMethod::ALL.get(n).copied())
            .ok_or_else(|| "sync methods are 0 to 6".to_owned())
    }
}

impl fmt::Display for Fsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fsync::Blocking => "blocking",
            Fsync::Async => "async",
            Fsync::Bulk => "bulk",
        })
    }
}

impl fmt::Display for SyncMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncMethod::None => "0: no sync",
            SyncMethod::FsyncBeforeClose => "1: fsync of each file before it is closed",
            SyncMethod::SyncThenOneFsync => {
                "2: one sync once all files are written, then fsync of one"
            }
            SyncMethod::PostReverseFsync => {
                "3: fsync of each file once all are written, in reverse order"
            }
            SyncMethod::SyncPostReverseFsync => "4: sync, then fsync of each file in reverse order",
            SyncMethod::PostFsync => "5: fsync of each file once all are written",
            SyncMethod::SyncPostFsync => "6: sync, then fsync of each file",
        })
    }
}
