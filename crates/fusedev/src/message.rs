//! A message from the kernel in its three parts.
//!
//! ```text
//!  header     which request, on which node, by which user        every message
//!  arguments  one structure of fixed size for each opcode        may be empty
//!  payload    names, data, lists                                 may be empty
//! ```
//!
//! `/dev/fuse` delivers the three parts in one buffer ([`Message::split`]). FUSE over io_uring
//! delivers each in a buffer of its own ([`Message::join`]).

use crate::abi::{self, opcode};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use zerocopy::{FromBytes, Immutable};

/// The kernel sent less than the protocol says, or a name without its NUL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("shorter than the protocol says")
    }
}

/// One message.
pub(crate) struct Message<'a> {
    pub header: abi::InHeader,
    pub arguments: Arguments<'a>,
    pub payload: Payload<'a>,
}

impl<'a> Message<'a> {
    /// Splits a message that has all parts in one buffer. A part that is too short is found when it
    /// is decoded.
    pub fn split(buffer: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let (header, rest) = abi::InHeader::read_from_prefix(buffer).map_err(|_| Malformed)?;
        let len = arguments_len(header.opcode).unwrap_or(rest.len());
        let (arguments, payload) = rest.split_at(len.min(rest.len()));
        Ok(Message {
            header,
            arguments: Arguments(arguments),
            payload: Payload(payload),
        })
    }

    /// Joins a message whose parts are in buffers of their own. The buffers of the header and of
    /// the arguments may be longer than these.
    pub fn join(
        header: &[u8],
        arguments: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Message<'a>, Malformed> {
        let (header, _) = abi::InHeader::read_from_prefix(header).map_err(|_| Malformed)?;
        let len = arguments_len(header.opcode).unwrap_or(arguments.len());
        Ok(Message {
            header,
            arguments: Arguments(arguments.get(..len).ok_or(Malformed)?),
            payload: Payload(payload),
        })
    }
}

/// Bytes of the arguments of `code`; `None` if they fill the rest of the message.
fn arguments_len(code: u32) -> Option<usize> {
    Some(match code {
        // Its length depends on the version of the kernel.
        opcode::INIT => return None,
        opcode::FORGET => size_of::<abi::ForgetIn>(),
        opcode::BATCH_FORGET => size_of::<abi::BatchForgetIn>(),
        opcode::SETATTR => size_of::<abi::SetAttrIn>(),
        opcode::MKNOD => size_of::<abi::MknodIn>(),
        opcode::MKDIR => size_of::<abi::MkdirIn>(),
        opcode::RENAME => size_of::<abi::RenameIn>(),
        opcode::RENAME2 => size_of::<abi::Rename2In>(),
        opcode::LINK => size_of::<abi::LinkIn>(),
        opcode::OPEN => size_of::<abi::OpenIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<abi::CreateIn>(),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => size_of::<abi::ReadIn>(),
        opcode::WRITE => size_of::<abi::WriteIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<abi::FsyncIn>(),
        opcode::SETXATTR => size_of::<abi::SetxattrIn>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<abi::GetxattrIn>(),
        opcode::IOCTL => size_of::<abi::IoctlIn>(),
        opcode::FALLOCATE => size_of::<abi::FallocateIn>(),
        opcode::LSEEK => size_of::<abi::LseekIn>(),
        opcode::COPY_FILE_RANGE => size_of::<abi::CopyFileRangeIn>(),
        // None, or the server ignores them.
        _ => 0,
    })
}

/// The arguments of a request.
pub(crate) struct Arguments<'a>(&'a [u8]);

impl Arguments<'_> {
    /// Takes a structure off the front.
    pub fn take<T: FromBytes + Immutable>(&mut self) -> Result<T, Malformed> {
        take(&mut self.0)
    }
}

/// The payload of a request.
pub(crate) struct Payload<'a>(&'a [u8]);

impl<'a> Payload<'a> {
    /// Takes a name and its NUL off the front.
    pub fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        let end = self.0.iter().position(|&b| b == 0).ok_or(Malformed)?;
        let name = OsStr::from_bytes(&self.0[..end]);
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    /// Takes `len` bytes off the front.
    pub fn bytes(&mut self, len: u32) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len as usize).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Takes a structure off the front.
    pub fn take<T: FromBytes + Immutable>(&mut self) -> Result<T, Malformed> {
        take(&mut self.0)
    }
}

fn take<T: FromBytes + Immutable>(bytes: &mut &[u8]) -> Result<T, Malformed> {
    let (value, rest) = T::read_from_prefix(bytes).map_err(|_| Malformed)?;
    *bytes = rest;
    Ok(value)
}
