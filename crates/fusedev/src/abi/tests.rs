use super::*;

/// Sizes in `linux/fuse.h`.
#[test]
fn sizes() {
    let sizes = [
        (size_of::<InHeader>(), 40),
        (size_of::<OutHeader>(), 16),
        (size_of::<InitOut>(), 64),
        (size_of::<SetAttrIn>(), 88),
        (size_of::<ReadIn>(), 40),
        (size_of::<WriteIn>(), 40),
        (size_of::<IoctlIn>(), 32),
        (size_of::<FallocateIn>(), 32),
        (size_of::<LseekIn>(), 24),
        (size_of::<CopyFileRangeIn>(), 56),
        (size_of::<FuseAttr>(), 88),
        (size_of::<AttrOut>(), 104),
        (size_of::<StatxOut>(), 288),
        (size_of::<EntryOut>(), 128),
        (size_of::<Dirent>(), 24),
        (size_of::<StatfsOut>(), 80),
        (size_of::<NotifyStoreOut>(), 24),
    ];
    for (at, (ours, kernels)) in sizes.into_iter().enumerate() {
        assert_eq!(ours, kernels, "structure {at}");
    }
}
