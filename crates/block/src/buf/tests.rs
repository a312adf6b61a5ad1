use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn handles_are_one_pointer() {
    assert_eq!(size_of::<Buf>(), 8);
    assert_eq!(size_of::<Option<Buf>>(), 8);
    assert_eq!(size_of::<BufMut>(), 8);
}

#[test]
fn lengths_and_contents() {
    assert!(BufMut::zeroed(PAGE_SIZE).iter().all(|b| *b == 0));
    assert_eq!(&*BufMut::copy_of(b"sluice"), b"sluice");
    assert_eq!(BufMut::scratch(0).len(), 0);
    for (len, align) in [
        (1024, 1024),
        (2048, 2048),
        (PAGE_SIZE, PAGE_SIZE),
        (1000, PAGE_SIZE),
        (2049, PAGE_SIZE),
    ] {
        let bufs: Vec<_> = (0..300u32)
            .map(|n| BufMut::copy_of(&vec![n as u8; len]).freeze())
            .collect();
        for (n, buf) in (0..).zip(&bufs) {
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % align, 0);
            assert!(
                buf.iter().all(|&byte| byte == n as u8),
                "{len}: buffers overlap"
            );
        }
    }
}

#[test]
#[should_panic(expected = "at most a page")]
fn more_than_a_page_is_refused() {
    BufMut::scratch(PAGE_SIZE + 1);
}

#[test]
fn a_shared_buffer_is_copied_before_it_is_written() {
    let mut a = BufMut::copy_of(&[1; 64]).freeze();
    assert!(a.is_unique());
    let before = a.as_ptr();
    a.make_mut()[0] = 2;
    assert_eq!(a.as_ptr(), before, "unique: in place");
    let b = a.clone();
    assert!(a.same(&b));
    assert!(!a.is_unique());
    a.make_mut()[0] = 3;
    assert!(!a.same(&b));
    assert_eq!((a[0], b[0]), (3, 2));
    let a2 = a.clone();
    let a = a.try_into_mut().unwrap_err();
    drop(a2);
    let mut m = a.try_into_mut().unwrap();
    m[1] = 9;
    assert_eq!(m.freeze()[..2], [3, 9]);
}

#[test]
fn fresh_buffers_are_adjacent() {
    for len in [1024, 2048, PAGE_SIZE] {
        std::thread::spawn(move || {
            let bufs: Vec<_> = (0..256).map(|_| BufMut::scratch(len)).collect();
            let adjacent = bufs
                .windows(2)
                .filter(|w| w[0].as_ptr() as usize + len == w[1].as_ptr() as usize)
                .count();
            // Other tests share the pool, so not all buffers need be.
            assert!(adjacent > 128, "{len}: only {adjacent} of 255");
        })
        .join()
        .unwrap();
    }
}

#[test]
fn references_are_counted_across_threads() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tx, rx) = std::sync::mpsc::channel::<(u8, Buf)>();
        let stop = &stop;
        scope.spawn(move || {
            // Holds each a while, frees in another thread than the one that allocated.
            let mut held = std::collections::VecDeque::new();
            for (seed, buf) in rx {
                assert!(buf.iter().all(|b| *b == seed), "changed under a reader");
                held.push_back((seed, buf));
                if held.len() > 100 {
                    let (seed, buf) = held.pop_front().unwrap();
                    assert!(buf.iter().all(|b| *b == seed), "changed while held");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        for t in 0..4u8 {
            let tx = tx.clone();
            scope.spawn(move || {
                let mut page = BufMut::copy_of(&[t; PAGE_SIZE]).freeze();
                for round in 0..5000u32 {
                    let seed = (round as u8).wrapping_mul(4).wrapping_add(t);
                    page.make_mut().fill(seed);
                    tx.send((seed, page.clone())).unwrap();
                }
            });
        }
        drop(tx);
    });
    assert!(stop.load(Ordering::Relaxed));
}

#[test]
fn trimmed_memory_is_usable_again() {
    for len in [1024, 2048, PAGE_SIZE] {
        let mut bufs: Vec<_> = (0..4096).map(|_| BufMut::copy_of(&vec![5; len])).collect();
        // Buffers that stay in use lie between those that are given back.
        let mut nth = 0;
        bufs.retain(|_| {
            nth += 1;
            nth % 7 == 0
        });
        assert!(pool::trim(0, 3 * PAGE_SIZE as u64) <= 3 * PAGE_SIZE as u64);
        pool::trim(0, u64::MAX);
        let stats = pool::stats();
        assert!(stats.chunk_bytes >= stats.free_bytes);
        let more: Vec<_> = (0..4096).map(|_| BufMut::zeroed(len)).collect();
        assert!(more.iter().all(|b| b.iter().all(|x| *x == 0)));
        assert!(bufs.iter().all(|b| b.iter().all(|x| *x == 5)), "{len}");
        drop((bufs, more));
        pool::trim(0, u64::MAX);
    }
}
