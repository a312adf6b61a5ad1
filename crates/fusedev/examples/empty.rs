//! A FUSE server that does no work. It measures the upper bound that the kernel and the protocol
//! set on this machine. Usage: `empty DIR [THREADS [dev|uring]]`. Every lookup finds no name, every
//! write succeeds, and nothing is stored.

use fusedev::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

struct Empty(AtomicU64);

const TTL: Duration = Duration::from_secs(86_400);

fn attr(ino: u64, mode: u32) -> Attr {
    Attr {
        ino,
        mode: mode | 0o777,
        nlink: 1,
        blksize: 4096,
        ..Attr::default()
    }
}

impl Empty {
    /// A new inode of type `mode`; without a type, "no such name".
    fn entry(&self, mode: u32) -> Entry {
        let node = match mode {
            0 => 0,
            _ => self.0.fetch_add(1, Ordering::Relaxed),
        };
        Entry {
            node: NodeId(node),
            generation: 0,
            attr: attr(node, mode),
            ttl: TTL,
        }
    }
}

impl Server for Empty {
    fn init(&self, _: Features, _: (u32, u32)) -> Features {
        Features::PARALLEL_DIROPS | Features::NO_OPEN_SUPPORT | Features::NO_OPENDIR_SUPPORT
    }

    fn request(&self, request: Request<'_>, reply: Reply) {
        let many = 1 << 40;
        match request.operation {
            Operation::Lookup { .. } => reply.entry(&self.entry(0)),
            Operation::GetAttr => reply.attr(&attr(request.node.0, libc::S_IFDIR), TTL),
            Operation::MkNod { .. } => reply.entry(&self.entry(libc::S_IFREG)),
            Operation::MkDir { .. } => reply.entry(&self.entry(libc::S_IFDIR)),
            Operation::Write { data, .. } => reply.written(data.len() as u32),
            Operation::Unlink { .. } => reply.ok(),
            Operation::StatFs => reply.statfs(&StatFs {
                blocks: many,
                free: many,
                available: many,
                inodes: many,
                free_inodes: many,
                block_size: 4096,
                max_name: 255,
            }),
            Operation::GetXattr { .. } => reply.error(Errno::NODATA),
            _ => reply.error(Errno::NOSYS),
        }
    }
}

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = args
        .first()
        .expect("usage: empty DIR [THREADS [dev|uring]]");
    let spec = MountSpec {
        source: "empty".into(),
        subtype: "empty".into(),
        allow_other: true,
        ..MountSpec::default()
    };
    let fd = mount(&spec, Path::new(dir))?;
    let threads = args.get(1).and_then(|n| n.parse().ok()).unwrap_or(2);
    let transport = match args.get(2).map(String::as_str) {
        Some("uring") => TransportChoice::Ring,
        _ => TransportChoice::Device,
    };
    let serving = Serving {
        transport,
        threads,
        memory: 1 << 30,
    };
    Session::start(fd, Arc::new(Empty(AtomicU64::new(2))), serving)?.run()
}
