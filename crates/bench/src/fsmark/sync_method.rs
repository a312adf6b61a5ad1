//! fs_mark's ways to make files durable, and three ways to call fsync.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What -S chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncMethod {
    /// 0: nothing.
    None,
    /// 1: fsync before each close.
    FsyncBeforeClose,
    /// 2: after the files were written, one sync, and fsync of the first file.
    SyncThenOneFsync,
    /// 3: after the files were written, each is opened, fsynced and closed, the last one first.
    PostReverseFsync,
    /// 4: as 3, after a sync.
    SyncPostReverseFsync,
    /// 5: as 3, the first one first.
    PostFsync,
    /// 6: as 5, after a sync.
    SyncPostFsync,
}

/// How fsync is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fsync {
    /// As the system call: one file after another, each waited for.
    #[default]
    Blocking,
    /// Begun for one file after another; all are waited for when the last was begun.
    Async,
    /// One call for all of a thread's files, which stay open until then.
    Bulk,
}

/// The files that are opened, fsynced and closed after all were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    None,
    First,
    Forward,
    Backward,
}

impl SyncMethod {
    /// All, in order of their numbers.
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

    /// Whether everything is synced when the files are written.
    pub(super) fn syncs(self) -> bool {
        use SyncMethod::{SyncPostFsync, SyncPostReverseFsync, SyncThenOneFsync};
        matches!(
            self,
            SyncThenOneFsync | SyncPostReverseFsync | SyncPostFsync
        )
    }

    /// Which files are fsynced after that.
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
                "2: sync after the files were written, then fsync of one"
            }
            SyncMethod::PostReverseFsync => {
                "3: fsync of each file after all were written, last first"
            }
            SyncMethod::SyncPostReverseFsync => "4: sync, then fsync of each file, last first",
            SyncMethod::PostFsync => "5: fsync of each file after all were written",
            SyncMethod::SyncPostFsync => "6: sync, then fsync of each file",
        })
    }
}
