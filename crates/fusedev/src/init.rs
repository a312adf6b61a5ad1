//! INIT: the kernel and the server agree on a version and on features.

use crate::abi::{self, opcode};
use crate::channel::Channel;
use crate::features::Features;
use crate::message::Message;
use crate::reply::Reply;
use crate::server::Server;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// Background requests (readahead, asynchronous direct I/O) that the kernel sends before their
/// callers wait.
const MAX_BACKGROUND: u16 = 512;

/// The next step of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Init {
    /// The kernel sends INIT again, with a version that the server knows.
    Again,
    /// The connection can be used.
    Done,
}

/// The part of the answer that a session adds to the server's.
pub(crate) struct Terms {
    pub features: Features,
    /// The most data of a request, in bytes.
    pub max_write: u32,
}

/// Answers one INIT. `agree` is called with the features that the kernel offers.
pub(crate) fn answer_init(
    channel: &Arc<Channel>,
    server: &impl Server,
    message: &[u8],
    agree: impl FnOnce(Features) -> io::Result<Terms>,
) -> io::Result<Init> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::Unsupported, why.to_owned());
    let short = |_| wrong("the kernel's INIT is too short");
    let Message {
        header,
        mut arguments,
        ..
    } = Message::split(message).map_err(short)?;
    let reply = Reply::new(channel.clone(), header.unique);
    if header.opcode != opcode::INIT {
        return Err(wrong("the kernel's first request is not INIT"));
    }
    let init: abi::InitIn = arguments.take().map_err(short)?;
    let mut answer = abi::InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        ..abi::InitOut::default()
    };
    if init.major > abi::MAJOR {
        reply.value(&answer);
        return Ok(Init::Again);
    }
    if (init.major, init.minor) < (abi::MAJOR, abi::OLDEST_MINOR) {
        reply.error(Errno::PROTO);
        return Err(wrong(
            "this kernel's FUSE is too old; use Linux 5.4 or later",
        ));
    }
    let mut offered = Features::from_words(init.flags, 0);
    if offered.contains(Features::INIT_EXT) {
        let ext: abi::InitInExt = arguments.take().map_err(short)?;
        offered = Features::from_words(init.flags, ext.flags2);
    }
    let terms = match agree(offered) {
        Ok(terms) => terms,
        Err(error) => {
            reply.error(Errno::OPNOTSUPP);
            return Err(error);
        }
    };
    let wanted = server.init(offered, (init.major, init.minor))
        | Features::MAX_PAGES
        | Features::INIT_EXT
        | terms.features;
    (answer.flags, answer.flags2) = (wanted & offered).words();
    answer.max_readahead = init.max_readahead;
    answer.max_background = MAX_BACKGROUND;
    answer.congestion_threshold = MAX_BACKGROUND / 4 * 3;
    answer.max_write = terms.max_write;
    answer.max_pages = (terms.max_write as usize / rustix::param::page_size()) as u16;
    answer.time_gran = 1;
    reply.value(&answer);
    Ok(Init::Done)
}
