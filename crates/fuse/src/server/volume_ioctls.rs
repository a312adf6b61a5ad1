//! Ioctls on the volume, which any of its files takes: label, discard of free space, growth.

use super::{Server, errno, tunables};
use crate::durability;
use crate::resize::ResizeData;
use ext4::{Error, Result};
use fusedev::Reply;

const GET_LABEL: u32 = 0x8100_9431;
const SET_LABEL: u32 = 0x4100_9432;
/// FITRIM.
pub(super) const TRIM: u32 = 0xc018_5879;
/// `FSLABEL_MAX`.
const LABEL_SIZE: usize = 256;

impl Server {
    /// Carries out an ioctl and returns its data; `None` if the command is not one of these.
    pub(super) fn volume_ioctl(
        &self,
        uid: u32,
        command: u32,
        data: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        match command {
            GET_LABEL => {
                let mut label = self.fs.label();
                label.resize(LABEL_SIZE, 0);
                Ok(Some(label))
            }
            SET_LABEL => {
                tunables::check_owner(uid)?;
                let end = data.iter().position(|&byte| byte == 0);
                self.fs.set_label(&data[..end.unwrap_or(data.len())])?;
                Ok(Some(Vec::new()))
            }
            _ => Ok(None),
        }
    }

    /// Grows the volume, on a thread of its own, since it takes long.
    pub(super) fn resize(&self, uid: u32, data: &[u8], reply: Reply) {
        let size = match (tunables::check_owner(uid), ResizeData::requested(data)) {
            (Err(error), _) => return reply.error(errno(error)),
            (Ok(()), Some(size)) => size,
            (Ok(()), None) => return reply.error(errno(Error::Invalid("a short request"))),
        };
        let fs = self.fs.clone();
        durability::spawn(&self.fs, move || {
            let grown = fs.resize(size, &mut |_| {});
            let bytes = grown.map(|blocks| blocks * u64::from(fs.statfs().block_size));
            let answer = ResizeData::answer(bytes.map_err(|error| error.to_string()));
            reply.ioctl(0, &answer);
        });
    }

    /// Carries out FITRIM on a thread of its own, since it takes long.
    pub(super) fn trim(&self, uid: u32, data: &[u8], reply: Reply) {
        // struct fstrim_range: start, len, minlen.
        let words = data.as_chunks::<8>().0;
        let range = match (tunables::check_owner(uid), words) {
            (Err(error), _) => return reply.error(errno(error)),
            (Ok(()), [start, len, min]) => [start, len, min].map(|word| u64::from_ne_bytes(*word)),
            (Ok(()), _) => {
                return reply.error(errno(Error::Invalid("FITRIM needs a struct fstrim_range")));
            }
        };
        let fs = self.fs.clone();
        durability::spawn(&self.fs, move || {
            match fs.trim(range[0], range[1], range[2]) {
                Ok(trimmed) => {
                    let answer = [range[0], trimmed, range[2]].map(u64::to_ne_bytes);
                    reply.ioctl(0, answer.as_flattened());
                }
                Err(error) => reply.error(errno(error)),
            }
        });
    }
}
