use super::*;
use proptest::prelude::*;

/// A message of the kernel: a header, `words` in the machine's byte order, and `tail`.
fn message(code: u32, node: u64, words: &[u32], tail: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let len = 40 + words.len() * 4 + tail.len();
    for word in [len as u32, code, 7, 0, node as u32, (node >> 32) as u32] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    for word in [1000_u32, 100, 4242, 0].iter().chain(words) {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.extend_from_slice(tail);
    bytes
}

fn parsed(message: &[u8]) -> Result<Request<'_>, Malformed> {
    parse(Message::split(message)?)
}

#[test]
fn a_write() {
    // fh, offset, size, write_flags (from the page cache), lock_owner, flags, padding.
    let words = [0, 0, 4096, 1, 5, 1, 0, 0, 0x1002, 0];
    let message = message(opcode::WRITE, 12, &words, b"bytes");
    let request = parsed(&message).unwrap();
    assert_eq!(
        (request.node, request.uid, request.gid),
        (NodeId(12), 1000, 100)
    );
    let Operation::Write {
        offset,
        data,
        flags,
        kind,
        clear_privileges,
    } = request.operation
    else {
        panic!("{request:?}");
    };
    assert_eq!(
        (offset, data, flags, kind),
        (1 << 32 | 4096, &b"bytes"[..], 0x1002, WriteKind::Writeback)
    );
    assert!(!clear_privileges);
}

#[test]
fn changes_that_clear_privileges() {
    let write = message(opcode::WRITE, 12, &[0, 0, 0, 0, 0, 4, 0, 0, 0, 0], &[]);
    let Operation::Write {
        kind,
        clear_privileges,
        ..
    } = parsed(&write).unwrap().operation
    else {
        panic!("not a write");
    };
    assert!(clear_privileges && kind == WriteKind::WriteThrough);
    let mut words = [0; 22];
    words[0] = fattr::KILL_SUIDGID;
    let change = message(opcode::SETATTR, 1, &words, &[]);
    let Operation::SetAttr(set) = parsed(&change).unwrap().operation else {
        panic!("not a setattr");
    };
    let expected = SetAttr {
        clear_privileges: true,
        ..SetAttr::default()
    };
    assert_eq!(set, expected);
}

#[test]
fn a_truncated_write() {
    let words = [0, 0, 0, 0, 6, 0, 0, 0, 0, 0];
    let message = message(opcode::WRITE, 12, &words, b"bytes");
    assert_eq!(parsed(&message).unwrap_err(), Malformed);
}

#[test]
fn names() {
    let message = message(opcode::RENAME2, 1, &[9, 0, 1, 0], b"old\0new\0");
    let Operation::Rename {
        name,
        new_parent,
        new_name,
        flags,
    } = parsed(&message).unwrap().operation
    else {
        panic!("not a rename");
    };
    assert_eq!((name, new_name), (OsStr::new("old"), OsStr::new("new")));
    assert_eq!((new_parent, flags), (NodeId(9), 1));
}

#[test]
fn a_name_without_a_nul() {
    let message = message(opcode::LOOKUP, 1, &[], b"name");
    assert_eq!(parsed(&message).unwrap_err(), Malformed);
}

#[test]
fn times_before_1970() {
    let mut words = [0; 22];
    words[0] = fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW | fattr::SIZE;
    words[4] = 77;
    // atime: -2 s and 800,000,000 ns.
    words[8] = -2_i32 as u32;
    words[9] = u32::MAX;
    words[14] = 800_000_000;
    let message = message(opcode::SETATTR, 1, &words, &[]);
    let Operation::SetAttr(set) = parsed(&message).unwrap().operation else {
        panic!("not a setattr");
    };
    let expected = SetAttr {
        size: Some(77),
        atime: Some(SetTime::At(Time {
            secs: -2,
            nanos: 800_000_000,
        })),
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    assert_eq!(set, expected);
}

#[test]
fn forgets() {
    let mut seen = Vec::new();
    let one = message(opcode::FORGET, 5, &[3, 0], &[]);
    let many = message(
        opcode::BATCH_FORGET,
        0,
        &[2, 0, 6, 0, 1, 0, 7, 0, 2, 0],
        &[],
    );
    for message in [&one, &many] {
        let message = Message::split(message).unwrap();
        each_forget(message, |node, lookups| seen.push((node.0, lookups))).unwrap();
    }
    assert_eq!(seen, [(5, 3), (6, 1), (7, 2)]);
    let promised = message(opcode::BATCH_FORGET, 0, &[u32::MAX, 0, 6, 0, 1, 0], &[]);
    let promised = Message::split(&promised).unwrap();
    assert_eq!(each_forget(promised, |_, _| ()), Err(Malformed));
}

/// `message` knows the length of the arguments of each opcode that is parsed here.
#[test]
fn each_opcode_finds_its_arguments() {
    for code in (0..60).filter(|code| *code != opcode::INIT) {
        let message = message(code, 1, &[0; 64], &[]);
        assert!(parsed(&message).is_ok(), "opcode {code}");
    }
}

#[test]
fn an_unknown_opcode() {
    let message = message(999, 1, &[1, 2, 3], &[]);
    let operation = parsed(&message).unwrap().operation;
    assert!(matches!(operation, Operation::Other(999)));
}

proptest! {
    /// Any message is parsed or refused.
    #[test]
    fn never_panics(code in 0_u32..60, tail in proptest::collection::vec(any::<u8>(), 0..120)) {
        let message = message(code, 1, &[], &tail);
        let _ = parsed(&message);
        if let Ok(message) = Message::split(&tail) {
            let mut left = 1000;
            let _ = each_forget(message, |_, _| left -= 1);
        }
    }
}
