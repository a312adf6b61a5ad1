//! The exit code of a copy.

use super::host_xattr;
use super::progress::Progress;
use anyhow::{Result, bail};
use std::process::ExitCode;

/// The result of a command that copied files. Errors of single files are already printed.
///
/// # Errors
/// If files could not be copied.
pub fn exit_code(progress: &Progress) -> Result<ExitCode> {
    let refused = host_xattr::refused();
    if refused > 0 {
        eprintln!(
            "sluice: {refused} extended attributes were not set (the target does not support them, or requires root)"
        );
    }
    match progress.errors() {
        0 => Ok(ExitCode::SUCCESS),
        1 => bail!("one file could not be copied"),
        n => bail!("{n} files could not be copied"),
    }
}
